// What tch does not expose: the counters of CUDA's caching allocator, and the settings that the Python arms make.

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/headeronly/version.h>

#include <cstdint>

namespace {

c10::DeviceAllocator *cuda() { return c10::getDeviceAllocator(c10::DeviceType::CUDA); }

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

} // namespace

extern "C" {

const char *torchleak_torch_version() noexcept { return TORCH_VERSION; }

void torchleak_be_deterministic() noexcept {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

uint64_t torchleak_cuda_total(int8_t index) noexcept { return cuda()->getMemoryInfo(index).second; }

void torchleak_cuda_reset_peak(int8_t index) noexcept { cuda()->resetPeakStats(index); }

// The order is that of the protocol's DeviceMemory.
void torchleak_cuda_stats(int8_t index, int64_t *out) noexcept {
  const auto stats = cuda()->getDeviceStats(index);
  out[0] = stats.allocated_bytes[kAll].current;
  out[1] = stats.active_bytes[kAll].current;
  out[2] = stats.reserved_bytes[kAll].current;
  out[3] = stats.allocated_bytes[kAll].peak;
  out[4] = stats.reserved_bytes[kAll].peak;
  out[5] = stats.num_alloc_retries;
  out[6] = stats.num_ooms;
}

}
