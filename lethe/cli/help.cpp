#include "lethe/cli/help.h"

#include "lethe/base/error.h"
#include "lethe/config/settings_text.h"

namespace lethe {
namespace {

constexpr std::array<CommandInfo, 8> kCommands{{
    {"train",
     command::kTrain,
     "",
     "train a DeepSeek-V4 on your text",
     "Trains a DeepSeek-V4 model on text or prepared tokens, with every loss of the design: next "
     "token, "
     "multi-token\n"
     "prediction, the indexer's KL and expert balance. Values come from the built-in defaults, "
     "then --recipe,\n"
     "then each --config file in order, then the command line; the last one wins. The run's folder "
     "gets a record\n"
     "(run.jsonl, tensorboard/), checkpoints, the model (model/, readable by lethe generate and by "
     "transformers)\n"
     "and a report. Ctrl-C, SIGTERM and --max-seconds finish the step, save and stop; --load goes "
     "on "
     "from there,\n"
     "bit for bit as if nothing had happened, with the settings of the checkpoint.",
     {"lethe train --recipe tiny                      # the demo: a small model, the bundled text",
      "lethe train --load out/train/checkpoints       # go on where it stopped",
      "lethe train --recipe tiny --data my/texts --output out/mine --max-seconds 600"}},
    {"data prepare",
     command::kPrepare,
     "INPUT ...",
     "turn text or JSONL into a token data set for training",
     "Tokenizes files and folders into NAME.bin and NAME.idx (Megatron's form), beside them the "
     "loss mask\n"
     "of prompts (NAME.mask.bin/.idx), a card (NAME.json) and the tokenizer. Memory depends on "
     "the\n"
     "largest document (a line, or a file with --tokenizer), not on the input; a killed call goes "
     "on\n"
     "where it was when it is started again.",
     {"lethe data prepare corpus/ --output-prefix data/corpus",
      "lethe data prepare chat.jsonl --output-prefix data/chat --tokenizer tokenizer.json",
      "lethe data prepare lines.txt --input-format lines --output-prefix data/lines"}},
    {"tokenize",
     command::kTokenize,
     "FILE ...",
     "show the tokens of a text",
     "Prints the tokens of each file, - for the standard input: ids and bytes, and how many bytes "
     "a "
     "token has.",
     {"lethe tokenize notes.txt --tokenizer tokenizer.json",
      "lethe tokenize - --tokenizer tokenizer.json --format ids < notes.txt",
      "lethe tokenize notes.txt --format json         # bytes as tokens"}},
    {"runs",
     command::kRuns,
     "[DIR ...]",
     "list runs, or compare them",
     "Lists the runs below each folder (out, if none is given): how far they are, their losses, "
     "speed and memory.\n"
     "With --compare: which settings differ, and the losses side by side.",
     {"lethe runs", "lethe runs --compare out/first out/second", "lethe runs out --json"}},
    {"generate",
     command::kGenerate,
     "DIR",
     "print a sample from a trained model",
     "Reads the model in DIR (config.json and model.safetensors, as lethe train writes them) and "
     "continues a\n"
     "prompt with its tokenizer. The same seed gives the same text.",
     {"lethe generate out/train/model",
      "lethe generate out/train/model --prompt 'ROMEO:' --max-new-tokens 500 --top-p 0.9",
      "lethe generate out/train/model --temperature 0 # always the likeliest byte"}},
    {"compare",
     command::kCompare,
     "DIR",
     "check a model against expected tensors and gradients",
     "Reads a golden directory (config, weights under hub names, inputs, expected tensors and "
     "gradients), runs\n"
     "forward and backward and prints one row per tensor, worst first. Exits with 1 when one of "
     "them misses its\n"
     "tolerance. tools/make_golden.py writes such a directory from any DeepSeek-V4 model of "
     "transformers.",
     {"lethe compare tests/golden/T",
      "lethe compare tests/golden/T --dtype fp64",
      "lethe compare my/golden --json > rows.json"}},
    {"units",
     command::kUnits,
     "",
     "show what stays resident inside recomputed layers",
     "A layer that is recomputed whole (--recompute-ratio, --recompute-granularity full) keeps its "
     "input;\n"
     "--save-units keeps results inside it too, and backward computes those not again. This lists "
     "the\n"
     "units of a model: what each is made of, whether this build has it, and which layers do. Give "
     "the\n"
     "model as to lethe train.",
     {"lethe units --recipe tiny",
      "lethe units --hf-config my/model --json",
      "lethe train --recipe tiny --recompute-ratio 0.8 --save-units attn experts --dry-run"}},
    {"docs",
     command::kDocs,
     "",
     "write the generated reference pages",
     "Writes the reference pages that are generated from the tables in the program: every setting "
     "with its\n"
     "default, its rule and its meaning.",
     {"lethe docs", "lethe docs --out /tmp/reference", "lethe docs --print-config"}},
}};

constexpr std::array<std::string_view, 11> kNotBuilt{{"prepare-fp8",
                                                      "prepare-bf16",
                                                      "convert",
                                                      "export",
                                                      "inspect",
                                                      "verify",
                                                      "remap",
                                                      "launch",
                                                      "plan",
                                                      "report",
                                                      "sync"}};

constexpr std::array<CommonFlag, 5> kCommonFlags{{
    {command::kAll,
     "config",
     "FILE",
     "TOML file of settings; may be given again, a later file wins."},
    {command::kAll,
     "print-config",
     "",
     "Print every setting with its source and the rules checked; start nothing."},
    {command::kTrain,
     "dry-run",
     "",
     "Stop after the settings are checked; print sizes and the recompute plan."},
    {command::kTrain,
     "print-optimizer",
     "",
     "Print how each parameter would be updated; start nothing."},
    {command::kAll, "help", "", "This text."},
}};

std::string overview() {
  std::string out =
      "lethe - train DeepSeek-V4 models: every tensor checked, every byte accounted "
      "for\n\nCommands:\n";
  for (const CommandInfo& info : kCommands)
    out += fmt::format("  {:<13} {}\n", info.name, info.summary);
  out += "\nExamples:\n";
  for (const CommandInfo& info : kCommands) out += fmt::format("  {}\n", info.examples[0]);
  return out +
         "\nlethe COMMAND --help lists a command's settings, each with its default and its rule.\n";
}

}  // namespace

std::span<const CommandInfo> commands() {
  return kCommands;
}

const CommandInfo* find_command(std::string_view name) {
  for (const CommandInfo& info : kCommands)
    if (info.name == name) return &info;
  return nullptr;
}

std::span<const std::string_view> commands_not_built() {
  return kNotBuilt;
}

std::vector<CommonFlag> common_flags(CommandSet command) {
  std::vector<CommonFlag> out;
  for (const CommonFlag& flag : kCommonFlags)
    if ((flag.commands & command) != 0) out.push_back(flag);
  return out;
}

std::string help_text(std::string_view command) {
  if (command.empty()) return overview();
  const CommandInfo* info = find_command(command);
  LETHE_CHECK(ConfigError,
              info != nullptr,
              "lethe [command]: must be a command with a help text, got '{}'; see lethe --help",
              command);
  std::string out = fmt::format("Usage: lethe {}{}{} [--flag value ...]\n\n{}\n\nExamples:\n",
                                info->name,
                                info->positional.empty() ? "" : " ",
                                info->positional,
                                info->about);
  for (const std::string_view example : info->examples) out += fmt::format("  {}\n", example);
  out += "\nCommon flags:\n";
  for (const CommonFlag& flag : common_flags(info->bit))
    out +=
        fmt::format("  {:<20} {}\n",
                    fmt::format("--{}{}{}", flag.flag, flag.value.empty() ? "" : " ", flag.value),
                    flag.help);
  return out + settings_help(info->bit);
}

}  // namespace lethe
