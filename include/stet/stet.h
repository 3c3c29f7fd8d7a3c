// stet as a library: models, and contexts whose state is saved, restored, forked and rolled back
// like a database row.
//
//   auto model = stet::Model::load("model.gguf");
//   auto context = stet::Context::create(*model, 2);
//   auto prompt = model->encode("Once upon a time");
//   auto answer = context->generate(0, *prompt, {.tokens_max = 40});
//   context->fork(0, 1);                    // shares every page
//   context->save_file(0, "story.state");   // verified byte by byte when it is restored
//
// examples/ has whole programs; docs/reference/library.md says how to build against it.
#pragma once

#include "stet/context.h"
#include "stet/model.h"
#include "stet/status.h"
#include "stet/stream.h"
