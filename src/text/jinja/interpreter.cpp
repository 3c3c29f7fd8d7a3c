#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/interpreter_impl.h"

namespace stet::text::jinja {

Interpreter::Frame::Frame(Interpreter& interpreter, Scope* parent)
    : interpreter_(interpreter), outer_(interpreter.scope_) {
    if (interpreter.free_scopes_.empty()) {
        interpreter.runtime_.charge_memory(sizeof(Scope));
        scope_ = &interpreter.scopes_.emplace_back();
    } else {
        scope_ = interpreter.free_scopes_.back();
        interpreter.free_scopes_.pop_back();
    }
    scope_->parent = parent;
    interpreter.scope_ = scope_;
}

Interpreter::Frame::~Frame() {
    interpreter_.scope_ = outer_;
    if (scope_->captured) return;
    interpreter_.runtime_.release_memory(scope_->variables.size() *
                                         sizeof(scope_->variables.front()));
    scope_->variables.clear();
    interpreter_.free_scopes_.push_back(scope_);
}

Interpreter::Capture::Capture(Interpreter& interpreter)
    : interpreter_(interpreter), outer_(interpreter.out_) {
    interpreter.out_ = &text_;
}

Interpreter::Capture::~Capture() {
    interpreter_.out_ = outer_;
    interpreter_.runtime_.release_memory(text_.size());
}

std::string Interpreter::Capture::take() {
    interpreter_.runtime_.release_memory(text_.size());
    return std::exchange(text_, {});
}

std::string Interpreter::run(const Dict& variables) {
    globals_.resize(program_.symbols.size());
    const auto define = [&](const std::string& name, const Value& value) {
        const auto known = program_.symbols.find(name);
        if (known != program_.symbols.end()) globals_[known->second] = value;
    };
    for (const FunctionEntry& function : global_functions()) {
        define(std::string(function.name), Value::object(runtime_.make<Function>(&function)));
    }
    for (const auto& [name, value] : variables.entries()) define(name.str(), value);
    Capture capture(*this);
    try {
        exec_block(program_.body);
    } catch (TemplateError& error) {
        if (error.line == 0) error.line = line_;
        throw;
    }
    return capture.take();
}

void Interpreter::emit(std::string_view text) {
    runtime_.charge_memory(text.size());
    if (text.size() > runtime_.limits().output_bytes - out_->size()) {
        fail_exhausted(
            fmt::format("the template writes more than {} bytes", runtime_.limits().output_bytes));
    }
    *out_ += text;
}

void Interpreter::emit(const Value& value) {
    if (value.is_string()) {
        emit(value.str());
    } else {
        emit(to_string(runtime_, value));
    }
}

void Interpreter::bind(Symbol symbol, Value value) {
    if (scope_ == nullptr) {
        globals_[symbol] = std::move(value);
        return;
    }
    runtime_.charge_steps(scope_->variables.size() / 16);
    for (auto& [bound, held] : scope_->variables) {
        if (bound != symbol) continue;
        held = std::move(value);
        return;
    }
    runtime_.charge_memory(sizeof(scope_->variables.front()));
    scope_->variables.emplace_back(symbol, std::move(value));
}

const Value* Interpreter::look_up(Symbol symbol) const {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
        runtime_.charge_steps(scope->variables.size() / 16);
        for (const auto& [bound, value] : scope->variables) {
            if (bound == symbol) return &value;
        }
    }
    const std::optional<Value>& global = globals_[symbol];
    return global ? &*global : nullptr;
}

void Interpreter::assign(const Expr& target, const Value& value) {
    if (target.kind == ExprKind::name) {
        bind(target.symbol, value);
        return;
    }
    if (target.kind == ExprKind::member) {
        const Value* held = look_up(target.symbol);
        const Namespace* space = held == nullptr ? nullptr : held->as<Namespace>();
        if (space == nullptr) {
            fail(fmt::format("can't set an attribute of '{}': it is not a namespace", target.name));
        }
        space->attributes->set(runtime_, target.constant, value);
        return;
    }
    require_defined(value);
    const Values items = items_of(runtime_, value);
    if (items.size() != target.items.size()) {
        fail(fmt::format("can't unpack {} values into {} variables", items.size(),
                         target.items.size()));
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i]);
}

Interpreter::Flow Interpreter::exec_block(const Block& block) {
    const Runtime::Level level(runtime_);
    for (const Stmt* stmt : block) {
        const Flow flow = exec(*stmt);
        if (flow != Flow::normal) return flow;
    }
    return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const Stmt& stmt) {
    runtime_.charge_steps(1);
    line_ = stmt.line;
    switch (stmt.kind) {
        case StmtKind::data:
            emit(stmt.data.str());
            break;
        case StmtKind::output:
            for (const Expr* expr : stmt.exprs) emit(eval(*expr));
            break;
        case StmtKind::if_:
            return exec_if(stmt);
        case StmtKind::for_:
            return exec_for(stmt);
        case StmtKind::set:
            assign(*stmt.target, eval(*stmt.exprs[0]));
            break;
        case StmtKind::set_block:
            return exec_set_block(stmt);
        case StmtKind::macro:
            exec_macro(stmt);
            break;
        case StmtKind::call_block:
            exec_call_block(stmt);
            break;
        case StmtKind::filter_block:
            return exec_filter_block(stmt);
        case StmtKind::with:
            return exec_with(stmt);
        case StmtKind::scope:
            return exec_scope(stmt);
        case StmtKind::break_:
            return Flow::break_loop;
        case StmtKind::continue_:
            return Flow::continue_loop;
    }
    return Flow::normal;
}

Interpreter::Flow Interpreter::exec_if(const Stmt& stmt) {
    for (const auto& [condition, body] : stmt.branches) {
        if (truthy(runtime_, eval(*condition))) return exec_block(body);
    }
    return exec_block(stmt.otherwise);
}

Interpreter::Flow Interpreter::exec_scope(const Stmt& stmt) {
    const Frame frame(*this, scope_);
    return exec_block(stmt.body);
}

Interpreter::Flow Interpreter::exec_with(const Stmt& stmt) {
    // All values are of the scope outside.
    Values values;
    for (std::size_t i = 1; i < stmt.exprs.size(); i += 2) values.push_back(eval(*stmt.exprs[i]));
    const Frame frame(*this, scope_);
    for (std::size_t i = 0; i < values.size(); ++i) assign(*stmt.exprs[2 * i], values[i]);
    return exec_block(stmt.body);
}

Interpreter::Flow Interpreter::exec_filter_block(const Stmt& stmt) {
    std::string text;
    {
        Capture capture(*this);
        const Frame frame(*this, scope_);
        const Flow flow = exec_block(stmt.body);
        if (flow != Flow::normal) return flow;
        text = capture.take();
    }
    block_text_ = runtime_.string(std::move(text));
    emit(eval(*stmt.exprs[0]));
    return Flow::normal;
}

Interpreter::Flow Interpreter::exec_set_block(const Stmt& stmt) {
    std::string text;
    {
        Capture capture(*this);
        const Frame frame(*this, scope_);
        const Flow flow = exec_block(stmt.body);
        if (flow != Flow::normal) return flow;
        text = capture.take();
    }
    block_text_ = runtime_.string(std::move(text));
    assign(*stmt.target, stmt.exprs[0] == nullptr ? block_text_ : eval(*stmt.exprs[0]));
    return Flow::normal;
}

Interpreter::Flow Interpreter::exec_for(const Stmt& stmt) {
    const Value iterable = eval(*stmt.exprs[0]);
    if (run_loop(stmt, iterable, scope_, 0) || stmt.otherwise.empty()) return Flow::normal;
    const Frame frame(*this, scope_);
    return exec_block(stmt.otherwise);  // a break in here leaves the loop outside
}

// Whether a pass ran to its end. The reference takes a loop of which none did (all left by break or
// continue) for an empty one and runs its `else`; so does this.
bool Interpreter::run_loop(const Stmt& stmt, const Value& iterable, Scope* outer,
                           std::int64_t depth0) {
    Values items = items_of(runtime_, iterable);
    runtime_.charge_memory(items.size() * sizeof(Value));
    Loop* loop = runtime_.make<Loop>(this, &stmt, outer, std::move(items), depth0);
    const Value loop_value = Value::object(loop);
    bool completed = false;
    while (loop->step()) {
        runtime_.charge_steps(1);
        const Frame frame(*this, outer);
        bind(program_.known.loop, loop_value);
        assign(*stmt.target, *loop->current);
        const Flow flow = exec_block(stmt.body);
        if (flow == Flow::break_loop) break;
        completed |= flow == Flow::normal;
    }
    runtime_.release_memory(loop->items.size() * sizeof(Value));
    loop->items.clear();
    loop->next = 0;
    return completed;
}

bool Interpreter::passes(const Loop& loop, const Value& item) {
    const Frame frame(*this, loop.outer);
    assign(*loop.stmt->target, item);
    return truthy(runtime_, eval(*loop.condition));
}

void Interpreter::capture_scopes() {
    for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
        scope->captured = true;
    }
}

Value Interpreter::make_macro(const Stmt& stmt) {
    capture_scopes();
    return Value::object(runtime_.make<Macro>(&stmt, scope_));
}

void Interpreter::exec_macro(const Stmt& stmt) {
    bind(stmt.signature.name, make_macro(stmt));
}

void Interpreter::exec_call_block(const Stmt& stmt) {
    const Value caller = make_macro(stmt);
    emit(eval_call(*stmt.exprs[0], &caller));
}

Value Interpreter::call_macro(const Macro& macro, Arguments& arguments) {
    if (calls_ >= runtime_.limits().depth) runtime_.fail_depth();
    const Runtime::Level level(runtime_);
    ++calls_;
    std::string text;
    {
        Capture capture(*this);
        const Frame frame(*this, macro.outer);
        bind_parameters(macro, arguments);
        exec_block(macro.stmt->body);
        text = capture.take();
    }
    --calls_;
    return runtime_.string(std::move(text));
}

void Interpreter::bind_parameters(const Macro& macro, Arguments& arguments) {
    const Signature& signature = macro.stmt->signature;
    auto& named = arguments.named;
    const auto take_named = [&](std::string_view name) -> std::optional<Value> {
        const auto it = std::find_if(named.begin(), named.end(),
                                     [&](const auto& entry) { return entry.first == name; });
        if (it == named.end()) return std::nullopt;
        Value value = std::move(it->second);
        named.erase(it);
        return value;
    };
    const std::size_t count = signature.parameters.size();
    bool has_caller = false;
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < count; ++i) {
        const auto& [symbol, name] = signature.parameters[i];
        has_caller |= name == "caller";
        std::optional<Value> value;
        if (i < arguments.positional.size()) {
            value = arguments.positional[i];
        } else {
            value = take_named(name);
        }
        if (!value) {
            missing.push_back(i);
            value = Value::undefined(fmt::format("parameter '{}' was not provided", name));
        }
        bind(symbol, std::move(*value));
    }
    if (signature.uses_caller && !has_caller) {
        auto caller = take_named("caller");
        bind(program_.known.caller, caller ? *caller : Value::undefined("no caller is defined"));
    }
    if (signature.uses_kwargs) {
        Dict* rest = runtime_.make<Dict>();
        for (auto& [name, value] : named) rest->set(runtime_, runtime_.string(name), value);
        bind(program_.known.kwargs, Value::object(rest));
    } else if (!named.empty()) {
        fail(fmt::format("the macro '{}' has no parameter '{}'", signature.name_text,
                         named.front().first));
    }
    if (signature.uses_varargs) {
        const std::size_t used = std::min(count, arguments.positional.size());
        bind(program_.known.varargs,
             runtime_.tuple(Values(arguments.positional.begin() + static_cast<std::ptrdiff_t>(used),
                                   arguments.positional.end())));
    } else if (arguments.positional.size() > count) {
        fail(fmt::format("the macro '{}' takes not more than {} arguments, and {} were given",
                         signature.name_text, count, arguments.positional.size()));
    }
    const std::size_t first_default = count - signature.defaults.size();
    for (const std::size_t i : missing) {
        if (i < first_default) continue;
        bind(signature.parameters[i].first, eval(*signature.defaults[i - first_default]));
    }
}

Value Interpreter::call_loop(const Loop& loop, Arguments& arguments) {
    if (!loop.stmt->recursive) fail("only a loop marked 'recursive' can be called");
    if (arguments.positional.size() != 1 || !arguments.named.empty()) {
        fail("calling a loop takes one argument");
    }
    if (calls_ >= runtime_.limits().depth) runtime_.fail_depth();
    const Runtime::Level level(runtime_);
    ++calls_;
    Capture capture(*this);
    const Stmt& stmt = *loop.stmt;
    if (!run_loop(stmt, arguments.positional[0], loop.outer, loop.depth0 + 1)) {
        const Frame frame(*this, loop.outer);
        exec_block(stmt.otherwise);
    }
    --calls_;
    return runtime_.string(capture.take());
}

std::string interpret(const Program& program, Runtime& runtime, const Dict& variables) {
    return Interpreter(program, runtime).run(variables);
}

}  // namespace stet::text::jinja
