#include "lethe/ops/score_function.h"

#include "lethe/base/error.h"

namespace lethe::ops {

ScoreFunction parse_score_function(std::string_view name) {
  if (name == "sqrtsoftplus") return ScoreFunction::SqrtSoftplus;
  if (name == "sigmoid") return ScoreFunction::Sigmoid;
  if (name == "softmax") return ScoreFunction::Softmax;
  fail<ConfigError>(
      "gate [score_function]: must be sqrtsoftplus, sigmoid or softmax, got '{}'; correct "
      "scoring_func in the model's configuration",
      name);
}

}  // namespace lethe::ops
