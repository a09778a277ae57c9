// libtorch's CPU allocator in this process: counts bytes, and keeps large freed blocks for the next step.
//
// glibc maps a large block at each allocation and returns it at each free, so every step would fault in its
// activations again, page by page. A training step asks for the same sizes every time: a freed large block waits in a
// list of its size class. What waits plus what is live never exceeds what was live at once at the highest point, so
// the cache costs no memory that the process did not need before. Memory is not zeroed, as in libtorch's own.

#include "shim.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t ALIGNMENT = 64;
constexpr size_t LARGE = size_t(1) << 20;
constexpr size_t HUGE_PAGE = size_t(2) << 20;
constexpr size_t PAGE = 4096;

// Stands in the 64 bytes before the data.
struct Header {
  size_t asked;     // what counts
  size_t capacity;  // of a large block, header included: its size class; 0 for a small one
};
static_assert(sizeof(Header) <= ALIGNMENT);

size_t round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Eight classes per doubling: a block is at most an eighth larger than asked for.
size_t size_class(size_t n) {
  return round_up(n, std::max(PAGE, std::bit_floor(n) / 8));
}

class Blocks {
 public:
  void* take(size_t capacity) {
    const std::lock_guard<std::mutex> lock(mutex_);
    live_ += capacity;
    highest_ = std::max(highest_, live_);
    auto found = by_class_.find(capacity);
    void* block = nullptr;
    if (found != by_class_.end() && !found->second.empty()) {
      const auto entry = found->second.back();
      found->second.pop_back();
      block = entry->block;
      waiting_.erase(entry);
      cached_ -= capacity;
      reused_++;
    }
    shrink(highest_ - live_);
    if (!block) {
      block = map(capacity);
      if (!block) live_ -= capacity;
    }
    return block;
  }

  void give(void* block, size_t capacity) {
    const std::lock_guard<std::mutex> lock(mutex_);
    live_ -= capacity;
    waiting_.push_back({block, capacity});
    by_class_[capacity].push_back(std::prev(waiting_.end()));
    cached_ += capacity;
    shrink(highest_ - live_);
  }

  void trim() {
    const std::lock_guard<std::mutex> lock(mutex_);
    shrink(0);
    highest_ = live_;
  }

  void read(SlapoMemory* out) {
    const std::lock_guard<std::mutex> lock(mutex_);
    out->cached = cached_;
    out->mapped = mapped_;
    out->reused = reused_;
  }

 private:
  struct Entry {
    void* block;
    size_t capacity;
  };

  // Returns the blocks that have waited longest until at most `limit` bytes wait.
  void shrink(size_t limit) {
    while (cached_ > limit) {
      const auto oldest = waiting_.begin();
      auto& list = by_class_[oldest->capacity];
      list.erase(std::find(list.begin(), list.end(), oldest));
      cached_ -= oldest->capacity;
      munmap(oldest->block, oldest->capacity);
      waiting_.erase(oldest);
    }
  }

  // Maps at a multiple of the huge page size, so that the kernel may back the block by huge pages.
  void* map(size_t capacity) {
    const size_t slack = capacity >= HUGE_PAGE ? HUGE_PAGE : 0;
    void* mapping = mmap(nullptr, capacity + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    mapped_++;
    if (slack == 0) return mapping;
    char* start = static_cast<char*>(mapping);
    char* block = reinterpret_cast<char*>(round_up(reinterpret_cast<size_t>(start), HUGE_PAGE));
    if (block > start) munmap(start, block - start);
    char* end = start + capacity + slack;
    if (block + capacity < end) munmap(block + capacity, end - (block + capacity));
    madvise(block, capacity, MADV_HUGEPAGE);
    return block;
  }

  std::mutex mutex_;
  std::list<Entry> waiting_;  // longest first
  std::unordered_map<size_t, std::vector<std::list<Entry>::iterator>> by_class_;
  size_t live_ = 0;
  size_t highest_ = 0;
  size_t cached_ = 0;
  uint64_t mapped_ = 0;
  uint64_t reused_ = 0;
};

std::atomic<uint64_t> current{0};
std::atomic<uint64_t> peak{0};

Blocks& blocks() {
  // Never destroyed: tensors in static storage may outlive everything.
  static Blocks* instance = new Blocks;
  return *instance;
}

void release(void* data) {
  if (!data) return;
  auto* header = reinterpret_cast<Header*>(static_cast<char*>(data) - ALIGNMENT);
  current.fetch_sub(header->asked, std::memory_order_relaxed);
  if (header->capacity) {
    blocks().give(header, header->capacity);
  } else {
    std::free(header);
  }
}

void* obtain(size_t asked) {
  if (asked == 0) return nullptr;
  TORCH_CHECK(asked < SIZE_MAX / 2, "cannot allocate ", asked, " bytes");
  const size_t need = asked + ALIGNMENT;
  const size_t capacity = asked >= LARGE ? size_class(need) : 0;
  void* block = capacity ? blocks().take(capacity) : std::aligned_alloc(ALIGNMENT, round_up(need, ALIGNMENT));
  TORCH_CHECK(block, "not enough memory: cannot allocate ", asked, " bytes");
  *static_cast<Header*>(block) = {asked, capacity};
  const uint64_t now = current.fetch_add(asked, std::memory_order_relaxed) + asked;
  uint64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
  return static_cast<char*>(block) + ALIGNMENT;
}

struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t asked) override {
    void* data = obtain(asked);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

}  // namespace

extern "C" {

void slapo_allocator_install() {
  static CountingAllocator allocator;
  // Above the priority of libtorch's own choice.
  c10::SetCPUAllocator(&allocator, 100);
}

void slapo_allocator_read(SlapoMemory* out) {
  out->current = current.load(std::memory_order_relaxed);
  out->peak = peak.load(std::memory_order_relaxed);
  blocks().read(out);
}

void slapo_allocator_reset_peak() {
  peak.store(current.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void slapo_allocator_trim() {
  blocks().trim();
}
}
