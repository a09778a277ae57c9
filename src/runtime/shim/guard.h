// The end of every exception: functions of the C interface run their bodies here, and return what was thrown as text.
#pragma once

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <string>

inline char* copy_message(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

// Runs `body` and turns whatever it throws into a message.
template <typename Body>
char* guarded(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    return copy_message(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return copy_message(error.what());
  } catch (...) {
    return copy_message("an unknown C++ exception");
  }
}
