#include "host/gpu_monitor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include "host/nvml.h"
#include "triforce/format.h"

namespace triforce {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);

// nvmlClocksEventReasons.
constexpr std::array<std::pair<unsigned long long, const char*>, 5> kReasons = {{
    {0x04, kPowerCap},
    {0x08, "hw_slowdown"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},
}};

}  // namespace

class GpuMonitor::Sampler {
 public:
  Sampler(std::unique_ptr<Nvml> library, Nvml::Device device)
      : library_(std::move(library)), device_(device) {
    look();
    thread_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!wake_.wait_for(lock, kPeriod, [this] { return ending_; })) {
        lock.unlock();
        look();
        lock.lock();
      }
    });
  }
  ~Sampler() {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  GpuObservation observed() const {
    const std::scoped_lock lock(mutex_);
    GpuObservation out;
    if (clock_samples_ > 0) {
      out.clocks =
          ClockRange{static_cast<double>(min_mhz_), sum_mhz_ / static_cast<double>(clock_samples_),
                     static_cast<double>(max_mhz_)};
    }
    if (reasons_) {
      out.throttle_reasons.emplace();
      for (const auto& [bit, name] : kReasons) {
        if ((*reasons_ & bit) != 0) out.throttle_reasons->emplace_back(name);
      }
    }
    if (link_.first > 0 && link_.second > 0) {
      out.pcie = fmt::format("gen{} x{}", link_.first, link_.second);
    }
    return out;
  }

 private:
  // Takes one sample. The library is asked without the lock: it may take milliseconds.
  void look() {
    unsigned mhz = 0, generation = 0, width = 0;
    unsigned long long reasons = 0;
    const bool has_clock = library_->clock != nullptr &&
                           library_->clock(device_, Nvml::kSmClock, &mhz) == Nvml::kSuccess;
    const bool has_reasons =
        library_->reasons != nullptr && library_->reasons(device_, &reasons) == Nvml::kSuccess;
    const bool has_link = library_->link_generation != nullptr && library_->link_width != nullptr &&
                          library_->link_generation(device_, &generation) == Nvml::kSuccess &&
                          library_->link_width(device_, &width) == Nvml::kSuccess;
    const std::scoped_lock lock(mutex_);
    if (has_clock) {
      min_mhz_ = clock_samples_ == 0 ? mhz : std::min(min_mhz_, mhz);
      max_mhz_ = std::max(max_mhz_, mhz);
      sum_mhz_ += mhz;
      ++clock_samples_;
    }
    if (has_reasons) reasons_ = reasons_.value_or(0) | reasons;
    if (has_link) link_ = std::max(link_, std::pair{generation, width});
  }

  std::unique_ptr<Nvml> library_;
  Nvml::Device device_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::int64_t clock_samples_ = 0;
  unsigned min_mhz_ = 0, max_mhz_ = 0;
  double sum_mhz_ = 0;
  std::optional<unsigned long long> reasons_;
  std::pair<unsigned, unsigned> link_;  // generation, lanes
  std::thread thread_;
};

GpuMonitor::GpuMonitor(const std::string& pci_bus_id, const std::string& library) {
  auto nvml = std::make_unique<Nvml>(library);
  Nvml::Device device = nvml->device(pci_bus_id);
  if (device != nullptr) sampler_ = std::make_unique<Sampler>(std::move(nvml), device);
}

GpuMonitor::~GpuMonitor() = default;

GpuObservation GpuMonitor::observed() const {
  return sampler_ == nullptr ? GpuObservation{} : sampler_->observed();
}

}  // namespace triforce
