#include "core/io/summary.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/io/durable.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

void add(nlohmann::ordered_json& object, const std::string& key, const nlohmann::ordered_json& value) {
  if (object.contains(key)) throw RunError("summary: the key '" + key + "' is given twice");
  object[key] = value;
}

// TOML's numbers, strings, booleans and lists read as JSON; what does not (inf, nan) stays text.
nlohmann::ordered_json swept_object(const std::vector<std::pair<std::string, std::string>>& swept) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& [key, text] : swept) {
    const auto value = nlohmann::ordered_json::parse(text, nullptr, false);
    object[key] = value.is_discarded() ? nlohmann::ordered_json(text) : value;
  }
  return object;
}

}  // namespace

std::string swept_json(const std::vector<std::pair<std::string, std::string>>& swept) { return swept_object(swept).dump(); }

std::string to_json(const Summary& summary) {
  nlohmann::ordered_json object;
  object["schedule"] = summary.schedule;
  object["ranks"] = summary.ranks;
  object["stages"] = summary.stages;
  object["replicas"] = summary.replicas;
  object["steps"] = summary.steps;
  object["done"] = summary.done;
  if (summary.case_number >= 0) {
    object["case"] = summary.case_number;
    object["swept"] = swept_object(summary.swept);
  }
  object["tokens_per_s"] = summary.tokens_per_s;
  object["step_time_s"] = summary.step_time_s;
  object["compute_share"] = summary.compute_share;
  object["wait_share"] = summary.wait_share;
  object["bubble_share"] = summary.bubble_share;
  object["gemm_fraction"] = summary.gemm_fraction;
  object["final_loss"] = summary.final_loss;
  object["validation_loss"] = summary.validation_loss;
  object["peak_bytes"] = summary.peak_bytes;
  object["version_gap"]["max"] = summary.version_gap_max;
  object["version_gap"]["mean"] = summary.version_gap_mean;
  object["gradient_delay"]["max"] = summary.gradient_delay_max;
  object["gradient_delay"]["mean"] = summary.gradient_delay_mean;
  object["peak_in_flight"] = summary.peak_in_flight;
  object["bubble_seconds"] = nlohmann::ordered_json::object();
  for (const auto& [part, seconds] : summary.bubble_seconds) object["bubble_seconds"][part] = seconds;
  object["message_wait_seconds"] = summary.message_wait_seconds;
  object["seconds"] = nlohmann::ordered_json::object();
  for (const auto& [purpose, by_rank] : summary.seconds) object["seconds"][purpose] = by_rank;
  object["bytes"] = nlohmann::ordered_json::object();
  for (const auto& [category, by_rank] : summary.bytes) object["bytes"][category] = by_rank;
  object["sent_bytes_per_update"] = nlohmann::ordered_json::object();
  for (const auto& [purpose, by_rank] : summary.sent_bytes_per_update) object["sent_bytes_per_update"][purpose] = by_rank;
  for (const auto& [key, value] : summary.numbers) add(object, key, value);
  for (const auto& [key, value] : summary.texts) add(object, key, value);
  // dump writes non-finite numbers as null; bytes that are not UTF-8 (a path, a host name) are replaced, not fatal.
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool says_done(const std::filesystem::path& file, std::int64_t steps) {
  std::ifstream stream(file);
  const auto object = nlohmann::ordered_json::parse(stream, nullptr, false);
  return object.is_object() && object.value("done", nlohmann::ordered_json()) == true &&
         object.value("steps", nlohmann::ordered_json()) == steps;
}

void write_summary(const std::filesystem::path& file, const Summary& summary) { write_text(file, to_json(summary) + "\n"); }

}  // namespace minipipe::core
