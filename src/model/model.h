// A loaded model: file, configuration and weights together, and the runner that computes steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <span>

#include "base/env.h"
#include "exec/backend.h"
#include "exec/graph.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/weights.h"
#include "stet/status.h"

namespace stet::model {

struct ModelOptions {
    int threads = 0;  // 0: as many as help
    StateTypes state_types;
};

// Immutable after load, apart from the backend's threads, which run one step at a time.
struct Model {
    std::unique_ptr<gguf::File> file;
    std::unique_ptr<exec::Backend> backend;
    Config config;
    std::unique_ptr<Weights> weights;

    static Result<std::unique_ptr<Model>> load(std::unique_ptr<gguf::File> file,
                                               const ModelOptions& options);
};

// Computes steps, keeping a graph for each small batch shape. One thread at a time.
class Runner {
  public:
    explicit Runner(Model& model) : model_(&model) {}

    // Logits of step.output_rows, [rows][vocabulary], or their hidden states, [rows][width]; valid
    // until the next run(). The segments' new rows are written. Token ids must be below the
    // vocabulary's size.
    Result<std::span<const float>> run(const exec::Step& step);

    std::size_t buffer_bytes() const;  // of all kept graphs

  private:
    struct Cached {
        std::uint32_t tokens;
        std::uint32_t outputs;
        bool encodes;
        bool hidden;
        std::unique_ptr<exec::Graph> graph;
    };

    Model* model_;
    std::list<Cached> graphs_;  // last used first
};

}  // namespace stet::model
