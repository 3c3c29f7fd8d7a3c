// Tells one story with two ends: a prompt is computed once, forked, and saved.
//
//   branches MODEL.gguf
#include <stet/stet.h>

#include <iostream>

namespace {

int fail(const stet::Status& status) {
    std::cerr << "branches: " << status.to_string() << '\n';
    return stet::exit_code(status.code());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: branches MODEL.gguf\n";
        return 2;
    }
    const auto model = stet::Model::load(argv[1]);
    if (!model) return fail(model.status());
    auto context = stet::Context::create(*model, 2);
    if (!context) return fail(context.status());

    const auto prompt = model->encode("Once upon a time there was a proofreader who");
    if (!prompt) return fail(prompt.status());
    if (const auto fed = context->feed(0, *prompt); !fed) return fail(fed.status());
    // The fork shares every page with its origin: nothing is computed or copied.
    if (const auto forked = context->fork(0, 1); !forked) return fail(forked);

    stet::GenerateOptions options;
    options.tokens_max = 24;
    for (const stet::SequenceId id : {0U, 1U}) {
        const auto turn =
            model->encode(id == 0 ? " lost a page." : " found a comma.", {.add_special = false});
        if (!turn) return fail(turn.status());
        const auto answer = context->generate(id, *turn, options);
        if (!answer) return fail(answer.status());
        std::cout << "way " << id << ':' << answer->text << "\n\n";
    }

    // Whole or not at all, and verified byte by byte when it is restored.
    const auto written = context->save_all_file("branches.state");
    if (!written) return fail(written.status());
    std::cout << *written << " bytes in branches.state\n";
    return 0;
}
