#include "host/energy_meter.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "triforce/format.h"

namespace triforce {
namespace {

using Clock = std::chrono::steady_clock;

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = -1;
  file >> number;
  return file && number >= 0 ? std::optional(static_cast<std::uint64_t>(number)) : std::nullopt;
}

// A sensor of one domain. What it cannot read once it does not read again.
class Sensor {
 public:
  virtual ~Sensor() = default;
  // Adds what passed since it last did, and returns the sum; nullopt: it cannot.
  std::optional<double> joules() {
    if (joules_) {
      const std::optional<double> passed = passed_joules();
      joules_ = passed ? std::optional(*joules_ + *passed) : std::nullopt;
    }
    return joules_;
  }

 protected:
  virtual std::optional<double> passed_joules() = 0;

 private:
  std::optional<double> joules_ = 0.0;
};

// A zone of RAPL: energy_uj counts up to max_energy_range_uj, and then from 0 again.
class RaplZone final : public Sensor {
 public:
  RaplZone(std::string file, std::uint64_t range, std::uint64_t now)
      : file_(std::move(file)), range_(range), last_(now) {}

 protected:
  std::optional<double> passed_joules() override {
    const std::optional<std::uint64_t> now = number_in(file_);
    if (!now || *now > range_) return std::nullopt;
    const std::uint64_t passed = *now >= last_ ? *now - last_ : range_ - last_ + *now;
    last_ = *now;
    return static_cast<double>(passed) * 1e-6;
  }

 private:
  std::string file_;
  std::uint64_t range_, last_;
};

class GpuCounter final : public Sensor {
 public:
  GpuCounter(const Nvml& nvml, Nvml::Device device, unsigned long long now)
      : nvml_(nvml), device_(device), last_(now) {}

 protected:
  std::optional<double> passed_joules() override {
    unsigned long long now = 0;
    if (nvml_.energy(device_, &now) != Nvml::kSuccess || now < last_) return std::nullopt;
    return static_cast<double>(now - std::exchange(last_, now)) * 1e-3;
  }

 private:
  const Nvml& nvml_;
  Nvml::Device device_;
  unsigned long long last_;
};

// Between two samples power is taken to be their mean.
class GpuPower final : public Sensor {
 public:
  GpuPower(const Nvml& nvml, Nvml::Device device, unsigned milliwatts)
      : nvml_(nvml), device_(device), watts_(1e-3 * milliwatts) {}

 protected:
  std::optional<double> passed_joules() override {
    unsigned now = 0;
    if (nvml_.power(device_, &now) != Nvml::kSuccess) return std::nullopt;
    const auto at = Clock::now();
    const double seconds = std::chrono::duration<double>(at - std::exchange(at_, at)).count();
    const double watts = 1e-3 * now;
    return seconds * 0.5 * (watts + std::exchange(watts_, watts));
  }

 private:
  const Nvml& nvml_;
  Nvml::Device device_;
  double watts_;
  Clock::time_point at_ = Clock::now();
};

// The sensors of a domain, or why there are none.
struct Domain {
  std::vector<std::unique_ptr<Sensor>> sensors;
  std::string source, unread;
};

struct RaplZones {
  Domain processor, memory;
};

using Folders = std::map<std::string, std::string>;  // path by name, each name once

// Zones lie in the folder itself, where all are links, or in each other and in a folder intel-rapl,
// where the links lead.
void find_zones(const std::string& folder, int depth, Folders& found, std::error_code& error) {
  constexpr int kMaxDepth = 3;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();
    const bool is_zone = name.starts_with("intel-rapl:");
    if (is_zone) found.emplace(name, it->path());
    std::error_code below;  // a zone without a folder is said by its files
    if ((is_zone || name == "intel-rapl") && depth < kMaxDepth) {
      find_zones(it->path(), depth + 1, found, below);
    }
  }
}

// Zones of the whole platform and parts of packages are in none of the domains.
RaplZones rapl_zones(const std::string& folder) {
  RaplZones zones;
  std::error_code error;
  Folders paths;
  find_zones(folder, 0, paths, error);
  for (const auto& [zone, path] : paths) {
    std::string name;
    std::ifstream(path + "/name") >> name;
    const bool is_package = name.starts_with("package");
    if (!is_package && name != "dram") continue;
    Domain& domain = is_package ? zones.processor : zones.memory;
    const std::string file = path + "/energy_uj", range_file = path + "/max_energy_range_uj";
    const auto now = number_in(file), range = number_in(range_file);
    if (now && range && *range > 0 && *now <= *range) {
      domain.sensors.push_back(std::make_unique<RaplZone>(file, *range, *now));
      continue;
    }
    if (!domain.unread.empty()) continue;
    const bool knows_range = range && *range > 0;
    const std::string& wrong = knows_range ? file : range_file;
    const char* const why = access(wrong.c_str(), R_OK) != 0
                                ? std::strerror(errno)  // root alone may read it by default
                            : knows_range ? "expected a number up to max_energy_range_uj"
                                          : "expected a number above 0";
    domain.unread = fmt::format("{}: {}", wrong, why);
  }
  for (Domain* d : {&zones.processor, &zones.memory}) {
    if (!d->unread.empty()) d->sensors.clear();
    if (!d->sensors.empty()) d->source = fmt::format("RAPL ({})", folder);
    if (!d->sensors.empty() || !d->unread.empty()) continue;
    const std::string why = !paths.empty() ? "no zone of it"
                            : error        ? error.message()
                                    : "no intel-rapl:N, as in virtual machines and containers";
    d->unread = fmt::format("{}: {}", folder, why);
  }
  return zones;
}

}  // namespace

class EnergyMeter::Counters {
 public:
  explicit Counters(const EnergySource& source) : nvml_(nvml_of(source)) {
    RaplZones rapl = rapl_zones(source.powercap);
    domains_[0] = std::move(rapl.processor);
    domains_[1] = std::move(rapl.memory);
    open_gpu(source.pci_bus_id);
    read();
    std::optional<std::chrono::milliseconds> period;
    if (!domains_[0].sensors.empty() || !domains_[1].sensors.empty()) period = source.wrap_period;
    if (samples_power_)
      period = std::min(period.value_or(source.power_period), source.power_period);
    if (period) thread_ = std::thread([this, p = *period] { look(p); });
  }
  ~Counters() {
    {
      const std::scoped_lock lock(ending_mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  ByDomain read() {
    const std::scoped_lock lock(mutex_);
    ByDomain joules;
    for (std::size_t i = 0; i < domains_.size(); ++i) {
      Domain& d = domains_[i];
      std::optional<double> sum;
      if (!d.sensors.empty()) sum = 0;
      for (const auto& sensor : d.sensors) {
        const std::optional<double> of_sensor = sensor->joules();
        sum = sum && of_sensor ? std::optional(*sum + *of_sensor) : std::nullopt;
      }
      if (!d.sensors.empty() && !sum && d.unread.empty())
        d.unread = d.source + ": stopped to answer";
      joules.*kDomains[i] = sum;
    }
    return joules;
  }

  std::vector<EnergySensor> sensors() {
    const std::scoped_lock lock(mutex_);
    std::vector<EnergySensor> all;
    for (std::size_t i = 0; i < domains_.size(); ++i) {
      EnergySensor& s = all.emplace_back();
      s.domain = kDomainNames[i];
      if (domains_[i].unread.empty()) {
        s.source = domains_[i].source;
      } else {
        s.unread = domains_[i].unread;
      }
    }
    return all;
  }

 private:
  static std::unique_ptr<Nvml> nvml_of(const EnergySource& source) {
    return source.pci_bus_id.empty() ? nullptr : std::make_unique<Nvml>(source.nvml);
  }

  void open_gpu(const std::string& pci_bus_id) {
    Domain& gpu = domains_[2];
    if (nvml_ == nullptr) {
      gpu.unread = "no GPU computes";
      return;
    }
    const Nvml::Device device = nvml_->device(pci_bus_id);
    unsigned long long millijoules = 0;
    unsigned milliwatts = 0;
    if (device == nullptr) {
      gpu.unread = fmt::format("NVML is not there, or does not know GPU {}", pci_bus_id);
    } else if (nvml_->energy != nullptr && nvml_->energy(device, &millijoules) == Nvml::kSuccess) {
      gpu.source = "NVML energy counter";
      gpu.sensors.push_back(std::make_unique<GpuCounter>(*nvml_, device, millijoules));
    } else if (nvml_->power != nullptr && nvml_->power(device, &milliwatts) == Nvml::kSuccess) {
      gpu.source = "NVML power samples";
      gpu.sensors.push_back(std::make_unique<GpuPower>(*nvml_, device, milliwatts));
      samples_power_ = true;
    } else {
      gpu.unread = fmt::format("NVML has neither energy nor power of GPU {}", pci_bus_id);
    }
  }

  void look(std::chrono::milliseconds period) {
    std::unique_lock lock(ending_mutex_);
    while (!wake_.wait_for(lock, period, [this] { return ending_; })) {
      lock.unlock();
      read();
      lock.lock();
    }
  }

  std::unique_ptr<Nvml> nvml_;
  bool samples_power_ = false;
  std::mutex mutex_;  // of the sensors
  std::array<Domain, kDomains.size()> domains_;
  std::mutex ending_mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

EnergyMeter::EnergyMeter(const EnergySource& source)
    : counters_(std::make_unique<Counters>(source)) {}
EnergyMeter::~EnergyMeter() = default;

ByDomain EnergyMeter::joules() const { return counters_->read(); }
std::vector<EnergySensor> EnergyMeter::sensors() const { return counters_->sensors(); }

}  // namespace triforce
