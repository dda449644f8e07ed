#include "options/settings.h"

namespace triforce {

SessionOptions session_options(const RunConfig& config) {
  SessionOptions options;
  options.device = config.device;
  options.dtype = config.dtype;
  options.threads = config.threads;
  options.cpu_isa = config.cpu_isa;
  options.host_attends = config.offload_attention != OffloadAttention::kStream;
  if (config.kv_offload) {
    options.far_rows_option = "--kv-offload";
  } else if (config.on_chip) {
    options.far_rows_option = "--on-chip";
  }
  return options;
}

PublishedSetting published_setting(const RunConfig& config) {
  PublishedSetting setting;
  setting.target = config.target.empty() ? config.random_weights : config.target;
  const std::string& draft = config.random_draft.empty() ? config.draft : config.random_draft;
  if (!draft.empty()) setting.draft = draft;
  setting.prompt = config.prefill;
  setting.generated = config.gen_len;
  setting.needle = config.dataset == "needle";
  setting.speculation = config.speculation;
  setting.kv_offload = config.kv_offload;
  setting.offload_attention = config.offload_attention;
  setting.on_chip = config.on_chip;
  setting.gpus = config.tp;
  return setting;
}

}  // namespace triforce
