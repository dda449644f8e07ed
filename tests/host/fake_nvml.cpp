// A libnvidia-ml with one GPU, whose clocks change from sample to sample. OLD_DRIVER: without what
// newer drivers added, and without PCIe.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

namespace {
constexpr int kNotFound = 6, kUninitialized = 1;
[[maybe_unused]] constexpr int kNotSupported = 3;
std::atomic<bool> begun{false};
[[maybe_unused]] std::atomic<unsigned> clocks{0}, reasons{0}, links{0}, energies{0}, powers{0};
int gpu;

template <class T, std::size_t kSize>
T at(const T (&values)[kSize], std::atomic<unsigned>& calls) {
  return values[std::min<std::size_t>(calls++, kSize - 1)];
}
}  // namespace

extern "C" {

int nvmlInit_v2() {
  begun = true;
  return 0;
}

int nvmlShutdown() {
  begun = false;
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  if (!begun) return kUninitialized;
  if (std::strcmp(id, "0000:17:00.0") != 0) return kNotFound;
  *device = &gpu;
  return 0;
}

int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  constexpr unsigned kMhz[] = {1500, 1980, 1200, 1600};
  if (!begun || device != &gpu || type != 1) return kUninitialized;
  *mhz = at(kMhz, clocks);
  return 0;
}

#ifdef OLD_DRIVER
int nvmlDeviceGetTotalEnergyConsumption(void* /*device*/, unsigned long long* /*millijoules*/) {
  return kNotSupported;  // GPUs before Volta
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  constexpr unsigned kMilliwatts[] = {30000, 50000};
  if (!begun || device != &gpu) return kUninitialized;
  *milliwatts = at(kMilliwatts, powers);
  return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* out) {
  if (!begun || device != &gpu) return kUninitialized;
  *out = 0x1;  // idle
  return 0;
}
#else
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  if (!begun || device != &gpu) return kUninitialized;
  *millijoules = 5'000'000 + 250 * energies++;
  return 0;
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* out) {
  constexpr unsigned long long kReasons[] = {0x1, 0x4, 0x20 | 0x100, 0};
  if (!begun || device != &gpu) return kUninitialized;
  *out = at(kReasons, reasons);
  return 0;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* generation) {
  constexpr unsigned kGenerations[] = {1, 5, 1};
  if (!begun || device != &gpu) return kUninitialized;
  *generation = at(kGenerations, links);
  return 0;
}

int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* lanes) {
  if (!begun || device != &gpu) return kUninitialized;
  *lanes = 16;
  return 0;
}
#endif

}  // extern "C"
