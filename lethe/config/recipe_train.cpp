#include "lethe/config/recipe_train.h"

#include <array>
#include <span>

#include <fmt/format.h>

namespace lethe {
namespace {

struct Row {
  std::string_view key;
  std::string_view value;
};

constexpr std::array<Row, 9> kTiny{{{"train_iters", "400"},
                                    {"lr", "2e-3"},
                                    {"min_lr", "2e-4"},
                                    {"lr_warmup_iters", "30"},
                                    {"seq_length", "256"},
                                    {"micro_batch_size", "4"},
                                    {"global_batch_size", "4"},
                                    {"dsa_indexer_loss_coeff", "0.01"},
                                    {"eval_interval", "100"}}};

// Model spec 12. The number of steps, the batch and the indexer's coefficient are nobody's default.
constexpr std::array<Row, 4> kFlash{
    {{"lr", "2.7e-4"}, {"min_lr", "2.7e-5"}, {"lr_warmup_iters", "2000"}, {"seq_length", "4096"}}};
constexpr std::array<Row, 4> kPro{
    {{"lr", "2.0e-4"}, {"min_lr", "2.0e-5"}, {"lr_warmup_iters", "2000"}, {"seq_length", "4096"}}};

std::span<const Row> rows_of(std::string_view recipe) {
  if (recipe == "tiny") return kTiny;
  if (recipe == "flash" || recipe == "flash-4layer") return kFlash;
  if (recipe == "pro") return kPro;
  return {};
}

}  // namespace

std::vector<GivenSetting> recipe_train_defaults(std::string_view recipe) {
  std::vector<GivenSetting> given;
  for (const Row& row : rows_of(recipe)) {
    GivenSetting one;
    one.name = row.key;
    one.words = {std::string(row.value)};
    one.origin = fmt::format("recipe {}", recipe);
    one.shown = fmt::format("{} ({})", row.key, one.origin);
    given.push_back(std::move(one));
  }
  return given;
}

}  // namespace lethe
