// Ranks in several processes: where they meet, and what the ranks of a group send each other. c10d's store and Gloo.
//
// libtorch comes without Gloo's headers, and c10d's header of the Gloo group names a few of its types. They are declared
// here as far as that header reads them; the build script gives it empty headers in place of Gloo's.

#include "guard.h"
#include "shim.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport
namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous
}  // namespace gloo

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

using std::chrono::milliseconds;

struct SlapoStore {
  c10::intrusive_ptr<c10d::Store> store;
};

struct SlapoGroup {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  milliseconds timeout;
};

namespace {

// Tags tell apart what is under way between two ranks at once; that is one exchange at most.
constexpr int TAG = 0;

// c10d notes what begins in one record of the process, and does not guard it against groups of other threads.
std::mutex beginning;

template <class Begin>
auto begun(Begin begin) {
  const std::lock_guard<std::mutex> alone(beginning);
  return begin();
}

}  // namespace

extern "C" {

char* slapo_store_open(
    const char* host, uint16_t port, int32_t listener, int64_t timeout, const char* prefix, SlapoStore** store) {
  return guarded([&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = listener >= 0;
    options.waitWorkers = false;
    options.timeout = milliseconds(timeout);
    if (listener >= 0) options.masterListenFd = listener;
    auto tcp = c10::make_intrusive<c10d::TCPStore>(host, options);
    *store = new SlapoStore{c10::make_intrusive<c10d::PrefixStore>(prefix, tcp)};
  });
}

void slapo_store_delete(SlapoStore* store) {
  delete store;
}

char* slapo_store_set(SlapoStore* store, const char* key, const uint8_t* data, size_t count) {
  return guarded([&] { store->store->set(key, std::vector<uint8_t>(data, data + count)); });
}

char* slapo_store_get(
    SlapoStore* store, const char* key, int64_t timeout, void (*push)(void*, const uint8_t*, size_t), void* sink) {
  return guarded([&] {
    store->store->wait({key}, milliseconds(timeout));
    const auto value = store->store->get(key);
    push(sink, value.data(), value.size());
  });
}

char* slapo_group_new(
    SlapoStore* store,
    const char* prefix,
    int32_t rank,
    int32_t size,
    const char* address,
    int64_t timeout,
    SlapoGroup** group) {
  return guarded([&] {
    auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout));
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(address)};
    // The caller waits for each collective before the next.
    options->threads = 1;
    auto own = c10::make_intrusive<c10d::PrefixStore>(prefix, store->store);
    *group = new SlapoGroup{
        c10::make_intrusive<c10d::ProcessGroupGloo>(own, rank, size, options), milliseconds(timeout)};
  });
}

void slapo_group_delete(SlapoGroup* group) {
  delete group;
}

char* slapo_group_sum(SlapoGroup* group, const at::Tensor* tensor) {
  return guarded([&] {
    std::vector<at::Tensor> tensors{*tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::SUM;
    options.timeout = group->timeout;
    begun([&] { return group->group->allreduce(tensors, options); })->wait();
  });
}

char* slapo_group_exchange(
    SlapoGroup* group, const at::Tensor* const* sent, const at::Tensor* const* received, int32_t* peer) {
  return guarded([&] {
    const int rank = group->group->getRank();
    const int size = group->group->getSize();
    std::vector<std::pair<int, c10::intrusive_ptr<c10d::Work>>> works;
    const auto start = [&](int other, const at::Tensor& tensor, bool sends) {
      *peer = other;
      if (tensor.numel() == 0) return;
      std::vector<at::Tensor> tensors{tensor};
      works.emplace_back(other, begun([&] {
        return sends ? group->group->send(tensors, other, TAG) : group->group->recv(tensors, other, TAG);
      }));
    };
    // Each begins with its right neighbour, so that not all send to the same rank at once.
    for (int step = 1; step < size; step++) start((rank + size - step) % size, *received[(rank + size - step) % size], false);
    for (int step = 1; step < size; step++) start((rank + step) % size, *sent[(rank + step) % size], true);
    for (const auto& [other, work] : works) {
      *peer = other;
      work->wait(group->timeout);
    }
  });
}
}
