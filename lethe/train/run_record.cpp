#include "lethe/train/run_record.h"

#include <cmath>
#include <filesystem>
#include <span>

#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"
#include "lethe/io/checksum.h"
#include "lethe/io/line_file.h"

namespace lethe {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: an absent value says the same.
void put(Json& object, const char* key, double value) {
  if (std::isfinite(value)) object[key] = value;
}

void put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) put(object, key, *value);
}

Json model_facts(const ModelConfig& m) {
  return {{"layers", m.num_layers},
          {"hidden", m.hidden},
          {"heads", m.heads},
          {"head_dim", m.head_dim},
          {"ratios", m.ratios},
          {"experts", m.num_experts},
          {"experts_per_token", m.experts_per_token},
          {"mtp_blocks", m.num_mtp},
          {"vocabulary", m.vocab_size}};
}

Json train_facts(const TrainConfig& t) {
  return {{"data", t.data},
          {"seq_length", t.seq_length},
          {"micro_batch_size", t.micro_batch_size},
          {"global_batch_size", t.global_batch_size},
          {"train_iters", t.train_iters},
          {"lr", t.lr},
          {"min_lr", t.min_lr},
          {"lr_warmup_iters", t.lr_warmup_iters},
          {"weight_decay", t.weight_decay},
          {"clip_grad", t.clip_grad},
          {"seed", t.seed},
          {"mtp_loss_scaling_factor", t.mtp_loss_coeff},
          {"dsa_indexer_loss_coeff", t.indexer_loss_coeff.value_or(0)},
          {"moe_aux_loss_coeff", t.balance_loss_coeff}};
}

Json recompute_facts(const RecomputeFacts& facts) {
  Json classes = Json::object();
  for (const auto& [layers, name] : facts.classes) classes[layers] = name;
  return {{"plan", facts.plan}, {"classes", std::move(classes)}, {"save_units", facts.save_units}};
}

Json recompute_counts(const RecomputeReport& r) {
  Json counts = {{"forgettable", r.forgettable},
                 {"released", r.released},
                 {"retained", r.retained},
                 {"replays", r.replays},
                 {"early_stops", r.early_stops},
                 {"late_restores", r.late_restores},
                 {"replay_ns", r.replay_ns}};
  for (const UnitReport& unit : r.units)
    counts["units"][unit.unit] = {
        {"kept", unit.kept}, {"predicted", unit.predicted}, {"forward_ns", unit.forward_ns}};
  return counts;
}

Json swap_counts(const SwapReport& r) {
  return {{"bytes_out", r.counts.bytes_out},
          {"bytes_in", r.counts.bytes_in},
          {"entries_out", r.counts.entries_out},
          {"entries_in", r.counts.entries_in},
          {"cancelled", r.counts.cancelled},
          {"dropped", r.counts.dropped},
          {"prefetch_hits", r.counts.prefetch_hits},
          {"prefetch_misses", r.counts.prefetch_misses},
          {"wait_out_ns", r.counts.wait_out_ns},
          {"wait_in_ns", r.counts.wait_in_ns},
          {"host_bytes_peak", r.host_bytes_peak}};
}

}  // namespace

struct RunRecord::Impl {
  LineFile file;

  RecordMark mark;

  void write(const Json& object) {
    const std::string line = object.dump(-1, ' ', false, Json::error_handler_t::replace);
    file.append(line);
    const std::string written = line + "\n";
    mark.crc = crc32c(std::as_bytes(std::span(written)), mark.crc);
    mark.num_bytes += std::ssize(written);
  }
};

RunRecord::RunRecord(const std::string& path) : impl_(new Impl{LineFile(path), {}}) {}

RunRecord::RunRecord(const std::string& path, const RecordMark& mark) {
  const std::string text = read_text_file(path);
  const auto wanted = static_cast<size_t>(mark.num_bytes);
  const bool begins =
      text.size() >= wanted && crc32c(std::as_bytes(std::span(text.data(), wanted))) == mark.crc;
  LETHE_CHECK(DataError,
              begins,
              "{}: must begin with the {} bytes that the checkpoint knows, got another record; it "
              "belongs to another run, go on in another folder with --output",
              path,
              mark.num_bytes);
  std::error_code error;
  std::filesystem::resize_file(path, wanted, error);
  LETHE_CHECK(DataError,
              !error,
              "{}: must be writable, got '{}'; check its permissions",
              path,
              error.message());
  impl_.reset(new Impl{LineFile(path), mark});
}

RunRecord::~RunRecord() = default;

void RunRecord::start(const Start& facts) {
  Json line{{"event", "start"},
            {"model", model_facts(facts.config.model)},
            {"train", train_facts(facts.config.train)},
            {"parameters", facts.parameters},
            {"trained_parameters", facts.trained_parameters},
            {"parameter_bytes", facts.parameter_bytes},
            {"train_tokens", facts.train_tokens},
            {"valid_tokens", facts.valid_tokens},
            {"unit", facts.text_unit},
            {"threads", facts.threads},
            {"kernels", facts.kernels},
            {"settings", facts.settings}};
  if (facts.recompute) line["recompute"] = recompute_facts(*facts.recompute);
  put(line, "bigram_entropy", facts.bigram_loss);
  impl_->write(line);
}

void RunRecord::operators(int64_t step, const std::map<std::string, std::string>& ran) {
  impl_->write({{"event", "operators"}, {"step", step}, {"ran", ran}});
}

void RunRecord::step(const StepReport& report) {
  Json line{{"event", "step"}, {"step", report.step}};
  put(line, "loss", report.loss);
  put(line, "loss_mtp", report.loss_mtp);
  put(line, "loss_kl", report.loss_kl);
  put(line, "loss_balance", report.loss_balance);
  put(line, "grad_norm", report.grad_norm);
  put(line, "lr", report.learning_rate);
  put(line, "tokens_per_second", report.tokens_per_second);
  line["saved_bytes"] = report.saved_bytes;
  line["live_bytes"] = report.live_bytes;
  line["peak_bytes"] = report.peak_bytes;
  Json parts;
  for (size_t c = 0; c < kNumByteCategories; ++c)
    parts[name_of(static_cast<ByteCategory>(c))] = report.at_peak[c];
  line["peak_by"] = std::move(parts);
  if (report.recompute) line["recompute"] = recompute_counts(*report.recompute);
  if (report.swap) line["swap"] = swap_counts(*report.swap);
  impl_->write(line);
}

void RunRecord::eval(int64_t step, double valid_loss) {
  Json line{{"event", "eval"}, {"step", step}};
  put(line, "valid_loss", valid_loss);
  impl_->write(line);
}

void RunRecord::end(int64_t step, const std::string& reason, double seconds) {
  Json line{{"event", "end"}, {"step", step}, {"reason", reason}};
  put(line, "seconds", seconds);
  impl_->write(line);
}

RecordMark RunRecord::sync() {
  impl_->file.sync();
  return impl_->mark;
}

RecordMark RunRecord::mark() const {
  return impl_->mark;
}

}  // namespace lethe
