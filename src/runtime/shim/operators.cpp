// Operators by name: prepared calls through libtorch's dispatcher, and their gradients through its autograd.
//
// A prepared call holds the operator handle and its constant arguments, already converted to the types of the
// operator's schema; a run copies them onto a stack, fills in the tensors and makes one boxed call.

#include "guard.h"
#include "shim.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/headeronly/version.h>

#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

using c10::IValue;
using c10::TypeKind;
using c10::TypePtr;

namespace {

[[noreturn]] void fail(const std::string& message) {
  throw std::runtime_error(message);
}

// Where tensors go in the argument list.
struct Position {
  size_t argument;
  bool list;
  bool optional_elements;
  std::vector<bool> present;
};

}  // namespace

struct SlapoCall {
  c10::OperatorHandle op;
  std::vector<IValue> arguments;
  std::vector<bool> given;
  std::vector<Position> positions;
  size_t positional = 0;
  size_t tensors = 0;

  explicit SlapoCall(c10::OperatorHandle handle)
      : op(handle), arguments(schema().arguments().size()), given(arguments.size()) {}

  const c10::FunctionSchema& schema() const {
    return op.schema();
  }
};

namespace {

// A constant as it came over the C interface.
struct Constant {
  int32_t kind;
  const void* data;
  size_t count;

  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }

  std::string describe() const {
    switch (kind) {
      case SLAPO_NONE: return "none";
      case SLAPO_TENSOR: return "a tensor";
      case SLAPO_TENSORS: return "a list of tensors";
      case SLAPO_INT: return "the integer " + std::to_string(*as<int64_t>());
      case SLAPO_FLOAT: return "the number " + std::to_string(*as<double>());
      case SLAPO_BOOL: return *as<uint8_t>() ? "true" : "false";
      case SLAPO_INTS: return "a list of integers";
      case SLAPO_FLOATS: return "a list of numbers";
      case SLAPO_BOOLS: return "a list of booleans";
      case SLAPO_DTYPE: return "an element type";
      default: return "a string";
    }
  }
};

[[noreturn]] void mismatch(const c10::Argument& argument, const Constant& constant) {
  fail("argument `" + argument.name() + "` is of type " + argument.real_type()->str() + ", given " + constant.describe());
}

// A number in a tensor's place keeps Python's promotion rules: it does not widen the other operand's type.
IValue wrapped_number(const c10::Scalar& value) {
  auto tensor = at::scalar_tensor(value, at::TensorOptions().dtype(value.type()));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

template <typename T, typename From>
IValue list_of(const From* data, size_t count) {
  c10::List<T> list;
  list.reserve(count);
  for (size_t i = 0; i < count; i++) {
    list.push_back(static_cast<T>(data[i]));
  }
  return list;
}

template <typename From>
IValue scalars(const From* data, size_t count) {
  c10::impl::GenericList list(c10::NumberType::get());
  for (size_t i = 0; i < count; i++) {
    list.push_back(IValue(data[i]));
  }
  return list;
}

IValue empty_list(const TypePtr& element) {
  switch (element->kind()) {
    case TypeKind::IntType: return c10::List<int64_t>();
    case TypeKind::FloatType: return c10::List<double>();
    case TypeKind::BoolType: return c10::List<bool>();
    case TypeKind::TensorType: return c10::List<at::Tensor>();
    default: return c10::impl::GenericList(element);
  }
}

IValue convert_list(const c10::Argument& argument, const TypePtr& element, const Constant& constant) {
  const auto kind = element->kind();
  const bool whole = constant.kind == SLAPO_INTS || constant.kind == SLAPO_FLOATS || constant.kind == SLAPO_BOOLS;
  if (whole && constant.count == 0) {
    return empty_list(element);
  }
  // `int[2] stride=1`: one number stands for all of them.
  const size_t copies = static_cast<size_t>(argument.N().value_or(1));
  if (kind == TypeKind::IntType && constant.kind == SLAPO_INTS) {
    return list_of<int64_t>(constant.as<int64_t>(), constant.count);
  }
  if (kind == TypeKind::IntType && constant.kind == SLAPO_INT) {
    return c10::List<int64_t>(std::vector<int64_t>(copies, *constant.as<int64_t>()));
  }
  if (kind == TypeKind::FloatType && constant.kind == SLAPO_FLOATS) {
    return list_of<double>(constant.as<double>(), constant.count);
  }
  if (kind == TypeKind::FloatType && constant.kind == SLAPO_INTS) {
    return list_of<double>(constant.as<int64_t>(), constant.count);
  }
  if (kind == TypeKind::FloatType && constant.kind == SLAPO_FLOAT) {
    return c10::List<double>(std::vector<double>(copies, *constant.as<double>()));
  }
  if (kind == TypeKind::BoolType && constant.kind == SLAPO_BOOLS) {
    return list_of<bool>(constant.as<uint8_t>(), constant.count);
  }
  if (kind == TypeKind::NumberType && constant.kind == SLAPO_INTS) {
    return scalars(constant.as<int64_t>(), constant.count);
  }
  if (kind == TypeKind::NumberType && constant.kind == SLAPO_FLOATS) {
    return scalars(constant.as<double>(), constant.count);
  }
  mismatch(argument, constant);
}

IValue convert_constant(const c10::Argument& argument, const TypePtr& type, const Constant& constant) {
  const bool is_int = constant.kind == SLAPO_INT;
  const bool is_float = constant.kind == SLAPO_FLOAT;
  const bool is_bool = constant.kind == SLAPO_BOOL;
  switch (type->kind()) {
    case TypeKind::NumberType:
    case TypeKind::TensorType: {
      const bool tensor = type->kind() == TypeKind::TensorType;
      if (is_int) return tensor ? wrapped_number(*constant.as<int64_t>()) : IValue(*constant.as<int64_t>());
      if (is_float) return tensor ? wrapped_number(*constant.as<double>()) : IValue(*constant.as<double>());
      if (is_bool) return tensor ? wrapped_number(*constant.as<uint8_t>() != 0) : IValue(*constant.as<uint8_t>() != 0);
      break;
    }
    case TypeKind::IntType:
      // The schema parser gives element types the type `int`; the declared one keeps them apart.
      if (constant.kind == SLAPO_DTYPE) return IValue(*constant.as<int64_t>());
      if (is_int) return IValue(*constant.as<int64_t>());
      break;
    case TypeKind::FloatType:
      if (is_float) return IValue(*constant.as<double>());
      if (is_int) return IValue(static_cast<double>(*constant.as<int64_t>()));
      break;
    case TypeKind::BoolType:
      if (is_bool) return IValue(*constant.as<uint8_t>() != 0);
      break;
    case TypeKind::StringType:
      if (constant.kind == SLAPO_STRING) return IValue(std::string(constant.as<char>(), constant.count));
      break;
    case TypeKind::ListType:
      return convert_list(argument, type->castRaw<c10::ListType>()->getElementType(), constant);
    default:
      break;
  }
  mismatch(argument, constant);
}

bool wants_dtype(const c10::Argument& argument) {
  return argument.real_type()->str().find("ScalarType") != std::string::npos;
}

IValue convert_none(const c10::Argument& argument) {
  if (argument.type()->kind() == TypeKind::OptionalType) {
    return IValue();
  }
  if (argument.type()->kind() == TypeKind::DeviceObjType) {
    return IValue(c10::Device(c10::kCPU));
  }
  mismatch(argument, Constant{SLAPO_NONE, nullptr, 0});
}

// The place of an argument in the schema.
size_t place(SlapoCall& call, const char* name) {
  const auto& schema = call.schema();
  if (!name) {
    if (call.positional >= call.arguments.size()) {
      fail("takes " + std::to_string(call.arguments.size()) + " arguments, given more");
    }
    return call.positional++;
  }
  const auto index = schema.argumentIndexWithName(name);
  if (!index) fail("has no argument `" + std::string(name) + "`");
  if (call.given[*index]) fail("argument `" + std::string(name) + "` is given twice");
  return static_cast<size_t>(*index);
}

void give(SlapoCall& call, const char* name, const Constant& constant) {
  const size_t index = place(call, name);
  call.given[index] = true;
  const c10::Argument& argument = call.schema().arguments()[index];
  IValue& value = call.arguments[index];
  if (constant.kind == SLAPO_NONE) {
    value = convert_none(argument);
    return;
  }
  TypePtr type = argument.type();
  if (auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  if (constant.kind == SLAPO_TENSOR) {
    if (type->kind() != TypeKind::TensorType) mismatch(argument, constant);
    call.positions.push_back({index, false, false, {true}});
    call.tensors++;
    return;
  }
  if (constant.kind == SLAPO_TENSORS) {
    const auto* list = type->castRaw<c10::ListType>();
    if (!list) mismatch(argument, constant);
    const auto element = list->getElementType();
    const bool optional = element->kind() == TypeKind::OptionalType;
    if (!optional && element->kind() != TypeKind::TensorType) mismatch(argument, constant);
    Position position{index, true, optional, {}};
    for (size_t i = 0; i < constant.count; i++) {
      const bool present = constant.as<uint8_t>()[i] != 0;
      if (!present && !optional) fail("entry " + std::to_string(i) + " of `" + argument.name() + "` may not be none");
      position.present.push_back(present);
      call.tensors += present ? 1 : 0;
    }
    call.positions.push_back(std::move(position));
    return;
  }
  if (wants_dtype(argument) != (constant.kind == SLAPO_DTYPE)) mismatch(argument, constant);
  value = convert_constant(argument, type, constant);
}

void fill_defaults(SlapoCall& call) {
  const auto& formal = call.schema().arguments();
  for (size_t i = 0; i < formal.size(); i++) {
    if (call.given[i]) continue;
    if (!formal[i].default_value()) fail("argument `" + formal[i].name() + "` is missing");
    call.arguments[i] = *formal[i].default_value();
  }
}

// The arguments with the tensors filled in.
torch::jit::Stack fill(const SlapoCall& call, const std::vector<at::Tensor>& tensors) {
  torch::jit::Stack stack(call.arguments);
  size_t next = 0;
  for (const auto& position : call.positions) {
    if (!position.list) {
      stack[position.argument] = tensors[next++];
    } else if (position.optional_elements) {
      c10::List<std::optional<at::Tensor>> list;
      for (const bool present : position.present) {
        list.push_back(present ? std::optional<at::Tensor>(tensors[next++]) : std::nullopt);
      }
      stack[position.argument] = std::move(list);
    } else {
      c10::List<at::Tensor> list;
      list.reserve(position.present.size());
      for (size_t i = 0; i < position.present.size(); i++) {
        list.push_back(tensors[next++]);
      }
      stack[position.argument] = std::move(list);
    }
  }
  return stack;
}

std::vector<at::Tensor> gather(const SlapoCall& call, const at::Tensor* const* tensors, size_t count) {
  if (count != call.tensors) {
    fail("needs " + std::to_string(call.tensors) + " tensors, given " + std::to_string(count));
  }
  std::vector<at::Tensor> gathered;
  gathered.reserve(count);
  for (size_t i = 0; i < count; i++) {
    gathered.push_back(*tensors[i]);
  }
  return gathered;
}

std::vector<at::Tensor> flatten(torch::jit::Stack&& stack) {
  std::vector<at::Tensor> results;
  results.reserve(stack.size());
  for (auto& value : stack) {
    if (value.isTensor()) {
      results.push_back(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      for (auto& tensor : value.toTensorVector()) {
        results.push_back(std::move(tensor));
      }
    } else {
      results.emplace_back();
    }
  }
  return results;
}

void deliver(std::vector<at::Tensor>&& results, void (*push)(void*, at::Tensor*), void* sink) {
  for (auto& result : results) {
    push(sink, result.defined() ? new at::Tensor(std::move(result)) : nullptr);
  }
}

// Whether two runs may differ: tagged as random, and not switched off by a constant probability or mode.
bool is_random(const SlapoCall& call) {
  if (!call.op.hasTag(at::Tag::nondeterministic_seeded)) {
    return false;
  }
  const auto& formal = call.schema().arguments();
  for (size_t i = 0; i < formal.size(); i++) {
    const auto& name = formal[i].name();
    const auto& value = call.arguments[i];
    if ((name == "p" || name == "dropout_p") && value.isDouble() && value.toDouble() == 0.0) return false;
    if ((name == "train" || name == "training") && value.isBool() && !value.toBool()) return false;
  }
  return true;
}

std::string known_overloads(const std::string& name) {
  std::string known;
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name == name) {
      known += (known.empty() ? "" : ", ") + (op.overload_name.empty() ? "the default" : "`" + op.overload_name + "`");
    }
  }
  return known.empty() ? "" : "; overloads of `" + name + "`: " + known;
}

std::vector<at::Tensor> differentiate(
    const SlapoCall& call,
    const std::vector<at::Tensor>& tensors,
    const uint8_t* wanted,
    const at::Tensor* const* gradients,
    size_t count) {
  c10::AutoGradMode grad_mode(true);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> leaves;
  for (size_t i = 0; i < tensors.size(); i++) {
    inputs.push_back(tensors[i].detach());
    if (wanted[i]) {
      if (!inputs[i].is_floating_point()) fail("tensor " + std::to_string(i) + " has no gradient: it is not floating");
      inputs[i].requires_grad_(true);
      leaves.push_back(inputs[i]);
    }
  }
  auto stack = fill(call, inputs);
  call.op.callBoxed(stack);
  const auto results = flatten(std::move(stack));
  if (results.size() != count) {
    fail("gives " + std::to_string(results.size()) + " results, given " + std::to_string(count) + " gradients");
  }
  std::vector<at::Tensor> roots;
  std::vector<at::Tensor> seeds;
  for (size_t i = 0; i < count; i++) {
    if (gradients[i] && results[i].defined() && results[i].requires_grad()) {
      roots.push_back(results[i]);
      seeds.push_back(*gradients[i]);
    }
  }
  std::vector<at::Tensor> found(leaves.size());
  if (!roots.empty() && !leaves.empty()) {
    found = torch::autograd::grad(roots, leaves, seeds, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
  }
  for (size_t i = 0; i < found.size(); i++) {
    found[i] = found[i].defined() ? found[i].detach() : at::zeros_like(leaves[i]).detach();
  }
  return found;
}

std::string quoted(const std::string& text) {
  return "\"" + text + "\"";
}

const char* truth(bool value) {
  return value ? "true" : "false";
}

}  // namespace

extern "C" {

void slapo_free(char* message) {
  std::free(message);
}

char* slapo_call_new(const char* name, const char* overload, SlapoCall** call) {
  return guarded([&] {
    auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!handle) {
      const std::string dot = *overload ? "." : "";
      fail("libtorch has no operator `" + std::string(name) + dot + overload + "`" + known_overloads(name));
    }
    *call = new SlapoCall(*handle);
  });
}

void slapo_call_delete(SlapoCall* call) {
  delete call;
}

char* slapo_call_argument(SlapoCall* call, const char* name, int32_t kind, const void* data, size_t count) {
  return guarded([&] { give(*call, name, Constant{kind, data, count}); });
}

char* slapo_call_finish(SlapoCall* call, int64_t* results) {
  return guarded([&] {
    fill_defaults(*call);
    const auto& schema = call->schema();
    *results = static_cast<int64_t>(schema.returns().size());
    for (const auto& result : schema.returns()) {
      if (result.type()->kind() == TypeKind::ListType) *results = -1;
    }
  });
}

char* slapo_call_run(
    SlapoCall* call,
    const at::Tensor* const* tensors,
    size_t count,
    uint8_t recorded,
    void (*push)(void*, at::Tensor*),
    void* sink) {
  return guarded([&] {
    auto stack = fill(*call, gather(*call, tensors, count));
    if (recorded) {
      const c10::AutoGradMode record(true);
      call->op.callBoxed(stack);
    } else {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      call->op.callBoxed(stack);
    }
    deliver(flatten(std::move(stack)), push, sink);
  });
}

char* slapo_call_vjp(
    SlapoCall* call,
    const at::Tensor* const* tensors,
    const uint8_t* wanted,
    size_t count,
    const at::Tensor* const* gradients,
    size_t results,
    void (*push)(void*, at::Tensor*),
    void* sink) {
  return guarded([&] {
    if (is_random(*call)) fail("is random: running it again would not give the same values");
    if (call->schema().is_mutable()) fail("changes its arguments: it has no derivative by running it again");
    deliver(differentiate(*call, gather(*call, tensors, count), wanted, gradients, results), push, sink);
  });
}

uint8_t slapo_owns_storage(const at::Tensor* tensor) {
  if (!tensor->has_storage() || tensor->use_count() != 1) return 0;
  const auto& storage = tensor->storage();
  return storage.use_count() == 1 && tensor->storage_offset() == 0 && tensor->is_contiguous() &&
      storage.nbytes() == tensor->nbytes();
}

uint8_t slapo_has_type(const at::Tensor* tensor, int8_t scalar_type, const int64_t* shape, size_t dims) {
  return tensor->layout() == c10::kStrided && tensor->scalar_type() == static_cast<c10::ScalarType>(scalar_type) &&
      tensor->sizes() == c10::IntArrayRef(shape, dims);
}

char* slapo_set_deterministic(uint8_t deterministic) {
  return guarded([&] {
    at::globalContext().setDeterministicAlgorithms(deterministic != 0, /*warn_only=*/false);
    // Programs never read memory before writing it; filling it would only cost time.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  });
}

char* slapo_set_threads(int32_t threads) {
  return guarded([&] { at::set_num_threads(threads); });
}

int32_t slapo_threads() {
  return at::get_num_threads();
}

char* slapo_version() {
  return copy_message(TORCH_VERSION);
}

char* slapo_features() {
  std::ostringstream json;
  json << "{\"libtorch\":" << quoted(TORCH_VERSION) << ",\"cpu\":" << quoted(at::get_cpu_capability())
       << ",\"threads\":" << at::get_num_threads() << ",\"openmp\":" << truth(at::hasOpenMP())
       << ",\"mkl\":" << truth(at::hasMKL()) << ",\"onednn\":" << truth(at::globalContext().hasMKLDNN())
       << ",\"cuda\":" << truth(at::hasCUDA()) << "}";
  return copy_message(json.str());
}

void slapo_parallel_for(int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  at::parallel_for(0, end, grain, [&](int64_t from, int64_t to) { body(context, from, to); });
}
}
