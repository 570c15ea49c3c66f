#include "app/command.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "minipipe_version.hpp"

namespace minipipe::app {

namespace {

CLI::App* add_deck_command(CLI::App& app, const std::string& name, const std::string& text, Command& command,
                           bool required = true) {
  CLI::App* sub = app.add_subcommand(name, text);
  sub->add_option("deck", command.deck, "deck (TOML)")->required(required);
  sub->add_option("overrides", command.overrides, "block.key=value ...");
  // Up to nine digits: more fit no sweep.
  const auto number = [](const std::string& given) {
    const bool good = !given.empty() && given.size() <= 9 && given.find_first_not_of("0123456789") == std::string::npos;
    return good
               ? ""
               : "'" + given + "' is not the number of a case; give one from 0 (minipipe train DECK --cases --list shows them)";
  };
  sub->add_option("--case", command.case_number, "case of the deck's [sweep], from 0")->check(CLI::Validator(number, ""));
  return sub;
}

// CLI11 takes a negative number for a large one.
const CLI::Validator seed(
    [](std::string& text) {
      std::uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      return error != std::errc() || end != text.data() + text.size() ? text + " is not a seed; give a whole number from 0"
                                                                      : std::string();
    },
    "SEED");

void add_prepare(CLI::App& app, data::PrepareOptions& options) {
  CLI::App* sub = app.add_subcommand("prepare", "make token files from text");
  sub->add_option("--text", options.text, "text files, taken one after the other");
  sub->add_option("--sentencepiece", options.sentencepiece_model, "SentencePiece model; without one, tokens are bytes");
  sub->add_option("--out", options.out, "folder for train.h5 and validation.h5")->required();
  sub->add_option("--validation", options.validation, "share of the text that becomes validation.h5")->capture_default_str();
  sub->add_flag("--force", options.force, "replace files that are there");
  sub->add_flag("--synthetic", options.synthetic, "text of a synthetic language of known entropy instead of files");
  sub->add_option("--tokens", options.tokens, "synthetic: number of tokens")->capture_default_str();
  sub->add_option("--vocab", options.vocab, "synthetic: vocabulary")->capture_default_str();
  sub->add_option("--seed", options.seed, "synthetic: seed")->check(seed)->capture_default_str();
}

// CLI11's own check lets "nan" pass and prints its bounds with 300 digits.
const CLI::Validator positive(
    [](std::string& text) {
      char* end = nullptr;
      const double value = std::strtod(text.c_str(), &end);
      return end == text.c_str() || *end != '\0' || !(value > 0) || !std::isfinite(value)
                 ? text + " is not a number above 0; give one"
                 : std::string();
    },
    "POSITIVE");

void add_tune(CLI::App& app, Command& command) {
  TuneCommand& tune = command.tune;
  CLI::App* sub = add_deck_command(app, "tune", "search partition, placement and order together; writes a plan that train runs",
                                   command, false);
  sub->add_option("--profile", tune.profile,
                  "costs of layers: a file of minipipe profile (.h5) or JSON, instead of those of the deck");
  const CLI::Range count(1, 1000000);
  sub->add_option("--devices", tune.devices, "number of devices")->check(count);
  sub->add_option("--microbatches", tune.microbatches, "microbatches per update")->check(count);
  sub->add_option("--time", tune.time, "seconds to search (10 if no --iterations are given)")->check(positive);
  sub->add_option("--iterations", tune.iterations, "evaluations to spend; with a seed, the result is the same everywhere")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 53));
  sub->add_option("--seed", tune.seed, "seed of the search")->check(seed)->capture_default_str();
  sub->add_option("--cap", tune.cap, "most activation memory of a device, in units of layer x microbatch")->check(positive);
  sub->add_option("--stages", tune.stages, "most stages (eight per device)")->check(count);
  sub->add_option("--schedule", tune.schedule, "plan, or paci: partition and window for the asynchronous schedule")
      ->capture_default_str();
  sub->add_option("--gap", tune.gap, "paci: largest version gap to allow")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  sub->add_option("--out", tune.out, "file for the plan (CSV)");
}

void add_simulate_size(CLI::App& sub, SimulateSize& size) {
  CLI::Option* schedule = sub.add_option("--schedule", size.schedule,
                                         "without a deck: simulate this schedule instead of the profile's cases, at any size");
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    sub.add_option(name, value, "with --schedule: " + text)->needs(schedule)->check(positive);
  };
  add("--devices", size.devices, "devices of a pipeline");
  add("--microbatches", size.microbatches, "microbatches per update");
  add("--chunks", size.chunks, "stages per device of interleaved (2)");
  add("--replicas", size.replicas, "data-parallel replicas, which exchange gradients");
  add("--layers", size.layers, "layers; the profile's list is repeated");
  add("--width", size.width, "hidden width");
  add("--sequence", size.sequence, "tokens per sequence");
}

// What a script's unset variable leaves of --option "$VALUE" would count as an option that is not given.
void refuse_empty_values(const CLI::App& sub) {
  for (const CLI::Option* option : sub.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) throw CLI::ValidationError(option->get_name(), "its value is empty; give one, or leave it out");
    }
  }
}

// CLI11 takes a deck as a positional; only these commands can do without one.
void require_deck_or_profile(const Command& command) {
  const bool may_lack = command.verb == Command::Verb::tune || command.verb == Command::Verb::simulate;
  if (may_lack && command.deck.empty() && command.tune.profile.empty()) throw CLI::RequiredError("a deck or --profile");
}

Command::Verb verb_of(const std::string& name) {
  if (name == "profile") return Command::Verb::profile;
  if (name == "bench") return Command::Verb::bench;
  if (name == "check") return Command::Verb::check;
  if (name == "simulate") return Command::Verb::simulate;
  if (name == "tune") return Command::Verb::tune;
  if (name == "eval") return Command::Verb::eval;
  if (name == "prepare") return Command::Verb::prepare;
  return Command::Verb::train;
}

}  // namespace

Parsed parse_command_line(int argc, char** argv, bool speak) {
  Parsed parsed;
  Command& command = parsed.command;
  CLI::App app("minipipe: trains transformers over pipeline stages under PACI, 1F1B-flush and other schedules", "minipipe");
  app.set_version_flag("--version", std::string("minipipe ") + MINIPIPE_VERSION + " (" + MINIPIPE_GIT_HASH + ")");
  bool help_deck = false;
  bool help_markdown = false;
  app.add_flag("--help-deck", help_deck, "list every key of the deck");
  app.add_flag("--help-deck-markdown", help_markdown, "the same as Markdown tables");
  app.require_subcommand(0, 1);

  CLI::App* train = add_deck_command(app, "train", "train; ranks by mpirun -n N", command);
  train->add_flag("--print-deck", command.print_deck, "print the resolved deck and stop");
  CLI::App* profile =
      add_deck_command(app, "profile", "measure the costs of the model's layers and links on these ranks", command);
  profile->add_option("--out", command.profile_out, "HDF5 file; without one, profile.h5 in output.directory");
  CLI::App* bench =
      add_deck_command(app, "bench", "measure kernels and a training step against this machine's own rates", command);
  bench->add_option("--out", command.bench_out, "HDF5 file to write");
  bench->add_option("--json", command.bench_json, "JSON file to write; without one, the object is the last line printed");
  bench->add_option("--repeat", command.repeat, "samples of each measurement, at least 3")->capture_default_str();
  CLI::Option* cases = train->add_flag("--cases", command.cases, "print the number of cases of the deck's [sweep] and stop");
  train->add_flag("--list", command.list, "with --cases: a line per case: number, ranks, folder, values")->needs(cases);
  CLI::App* check =
      add_deck_command(app, "check", "prove the schedule legal, predict time and memory; trains nothing", command);
  CLI::App* simulate =
      add_deck_command(app, "simulate", "simulate the schedule with the costs of [emulate] or of a profile", command, false);
  for (CLI::App* sub : {check, simulate}) {
    sub->add_option("--stages", command.stages, "number of stages, in place of parallel.stages; any ranks")
        ->check(CLI::Range(1, 1000000));
    sub->add_option("--profile", command.profile,
                    "use the costs in this file, made by minipipe profile (simulate without a deck: JSON)");
    sub->add_flag("--strict", command.strict, "refuse a profile of another machine");
  }
  check->add_flag("--all-ranks", command.all_ranks, "a line of every rank, not only of some of more than 64");
  simulate->add_option("--export", command.export_file, "write the simulated order as a CSV plan");
  simulate->add_option("--timeline", command.timeline, "write the simulated order as a Chrome trace");
  simulate->add_option("--updates", command.updates, "optimizer updates to simulate")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 53));
  add_simulate_size(*simulate, command.size);
  add_tune(app, command);
  CLI::App* eval = add_deck_command(app, "eval", "validation loss of a checkpoint", command);
  eval->add_option("--checkpoint", command.checkpoint, "checkpoint file, or \"latest\" of output.directory")
      ->default_str("latest");
  eval->add_option("--dump-batch", command.dump_batch, "write the next update's batch with the loss of each token (HDF5)");
  add_prepare(app, command.prepare);

  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty() && !help_deck && !help_markdown) {
      throw CLI::RequiredError("a sub-command (train, profile, bench, check, simulate, tune, eval, prepare)");
    }
    if (!app.get_subcommands().empty()) {
      refuse_empty_values(*app.get_subcommands().front());
      command.verb = verb_of(app.get_subcommands().front()->get_name());
      // Without a deck, simulate runs the cases of a JSON profile.
      if (command.verb == Command::Verb::simulate && command.deck.empty()) command.tune.profile = command.profile;
      if (!command.size.schedule.empty() && !command.deck.empty()) {
        throw CLI::ValidationError("--schedule",
                                   "a deck names its schedule itself: give schedule.name=" + command.size.schedule);
      }
      require_deck_or_profile(command);
    }
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    const int status = app.exit(error, out, err);
    if (speak) {
      std::cout << out.str() << std::flush;
      std::cerr << err.str() << std::flush;
    }
    parsed.done = true;
    parsed.status = status == 0 ? 0 : 2;
    return parsed;
  }
  if (help_deck) {
    command.verb = Command::Verb::help_deck;
  } else if (help_markdown) {
    command.verb = Command::Verb::help_deck_markdown;
  }
  if (command.verb == Command::Verb::eval && command.checkpoint.empty()) command.checkpoint = "latest";
  return parsed;
}

}  // namespace minipipe::app
