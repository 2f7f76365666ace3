#include "lethe/train/session_log.h"

#include <chrono>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lethe/io/host_name.h"

namespace lethe {
namespace {

using Json = nlohmann::ordered_json;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Json event(const char* name) {
  return {{"event", name}, {"time", now()}};
}

Json process_event(const char* name, int64_t step, const ProcessFacts& process) {
  Json line = event(name);
  line["host"] = host_name();
  line["pid"] = ::getpid();
  line["step"] = step;
  line["threads"] = process.threads;
  line["kernels"] = process.kernels;
  if (!process.plan.empty()) line["plan"] = process.plan;
  return line;
}

}  // namespace

// A path may be no UTF-8: replaced, not refused.
void SessionLog::append(const nlohmann::ordered_json& line) {
  file_.append(line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

SessionLog::SessionLog(const std::filesystem::path& folder) : file_(folder / "sessions.jsonl") {}

void SessionLog::started(const ProcessFacts& process) {
  append(process_event("started", 0, process));
}

void SessionLog::resumed(int64_t step,
                         const ProcessFacts& process,
                         const std::filesystem::path& checkpoint,
                         const std::map<std::string, std::string>& before,
                         const std::map<std::string, std::string>& now) {
  Json line = process_event("resumed", step, process);
  line["checkpoint"] = checkpoint.string();
  Json changed = Json::object();
  for (const auto& [key, value] : now) {
    const auto found = before.find(key);
    const std::string old = found == before.end() ? "" : found->second;
    if (old != value) changed[key] = {old, value};
  }
  line["changed"] = std::move(changed);
  append(line);
}

void SessionLog::saved(const SavedCheckpoint& saved) {
  Json line = event("saved");
  line["step"] = saved.step;
  line["folder"] = saved.folder.string();
  line["bytes"] = saved.num_bytes;
  line["seconds"] = saved.seconds;
  line["removed"] = saved.removed;
  append(line);
}

void SessionLog::save_failed(int64_t step, const std::string& error) {
  Json line = event("save_failed");
  line["step"] = step;
  line["error"] = error;
  line["failures"] = ++failures_;
  append(line);
}

void SessionLog::stopped(int64_t step, const std::string& reason, double seconds) {
  Json line = event("stopped");
  line["step"] = step;
  line["reason"] = reason;
  line["seconds"] = seconds;
  append(line);
}

}  // namespace lethe
