#include <fmt/format.h>

#include <utility>

#include "text/jinja/interpreter_impl.h"
#include "text/jinja/methods.h"

namespace stet::text::jinja {

Value Interpreter::eval(const Expr& expr) {
    const Runtime::Level level(runtime_);
    runtime_.charge_steps(1);
    line_ = expr.line;
    switch (expr.kind) {
        case ExprKind::constant:
            return expr.constant;
        case ExprKind::name:
            return eval_name(expr);
        case ExprKind::list:
            return runtime_.list(eval_all(expr.items));
        case ExprKind::tuple:
            return runtime_.tuple(eval_all(expr.items));
        case ExprKind::dict:
            return eval_dict(expr);
        case ExprKind::attribute:
            return get_attribute(runtime_, eval(*expr.items[0]), expr.constant);
        case ExprKind::item: {
            const Value object = eval(*expr.items[0]);
            return get_item(runtime_, object, eval(*expr.items[1]));
        }
        case ExprKind::slice:
            return eval_slice(expr);
        case ExprKind::call:
            return eval_call(expr);
        case ExprKind::filter:
            return eval_filter(expr);
        case ExprKind::test:
            return eval_test(expr);
        case ExprKind::not_:
            return Value::boolean(!truthy(runtime_, eval(*expr.items[0])));
        case ExprKind::negative:
            return negate(runtime_, eval(*expr.items[0]));
        case ExprKind::positive: {
            const Value value = eval(*expr.items[0]);
            return value.is_number() && !value.is_boolean()
                       ? value
                       : negate(runtime_, negate(runtime_, value));
        }
        case ExprKind::arithmetic: {
            const Value left = eval(*expr.items[0]);
            return arithmetic(runtime_, expr.op, left, eval(*expr.items[1]));
        }
        case ExprKind::concat:
            return eval_concat(expr);
        case ExprKind::compare:
            return eval_compare(expr);
        case ExprKind::and_: {
            const Value left = eval(*expr.items[0]);
            return truthy(runtime_, left) ? eval(*expr.items[1]) : left;
        }
        case ExprKind::or_: {
            const Value left = eval(*expr.items[0]);
            return truthy(runtime_, left) ? left : eval(*expr.items[1]);
        }
        case ExprKind::conditional:
            return eval_conditional(expr);
        case ExprKind::member:
            break;
    }
    return Value::none();
}

Value Interpreter::eval_name(const Expr& expr) {
    if (const Value* value = look_up(expr.symbol)) return *value;
    return Value::undefined(fmt::format("'{}' is undefined", expr.name));
}

Values Interpreter::eval_all(const std::vector<const Expr*>& exprs) {
    Values values;
    values.reserve(exprs.size());
    for (const Expr* expr : exprs) values.push_back(eval(*expr));
    return values;
}

Value Interpreter::eval_dict(const Expr& expr) {
    Dict* dict = runtime_.make<Dict>();
    for (std::size_t i = 0; i + 1 < expr.items.size(); i += 2) {
        const Value key = eval(*expr.items[i]);
        dict->set(runtime_, key, eval(*expr.items[i + 1]));
    }
    return Value::object(dict);
}

Value Interpreter::eval_slice(const Expr& expr) {
    const Value object = eval(*expr.items[0]);
    Value bounds[3];
    for (std::size_t i = 0; i < 3; ++i) {
        if (expr.items[i + 1] != nullptr) bounds[i] = eval(*expr.items[i + 1]);
    }
    return get_slice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::eval_conditional(const Expr& expr) {
    if (truthy(runtime_, eval(*expr.items[1]))) return eval(*expr.items[0]);
    if (expr.items[2] != nullptr) return eval(*expr.items[2]);
    return Value::undefined("an 'if' expression was false and has no 'else'");
}

Value Interpreter::eval_concat(const Expr& expr) {
    std::string text;
    for (const Expr* item : expr.items) {
        text += to_string(runtime_, eval(*item));
        runtime_.check_size(1, text.size());
    }
    return runtime_.string(std::move(text));
}

Value Interpreter::eval_compare(const Expr& expr) {
    Value left = eval(*expr.items[0]);
    for (std::size_t i = 0; i < expr.operators.size(); ++i) {
        Value right = eval(*expr.items[i + 1]);
        bool holds = false;
        switch (expr.operators[i]) {
            case Comparison::eq:
                holds = equal(runtime_, left, right);
                break;
            case Comparison::ne:
                holds = !equal(runtime_, left, right);
                break;
            case Comparison::lt:
                holds = compare(runtime_, TokenKind::lt, left, right);
                break;
            case Comparison::le:
                holds = compare(runtime_, TokenKind::le, left, right);
                break;
            case Comparison::gt:
                holds = compare(runtime_, TokenKind::gt, left, right);
                break;
            case Comparison::ge:
                holds = compare(runtime_, TokenKind::ge, left, right);
                break;
            case Comparison::in:
                holds = contains(runtime_, right, left);
                break;
            case Comparison::not_in:
                holds = !contains(runtime_, right, left);
                break;
        }
        if (!holds) return Value::boolean(false);
        left = std::move(right);
    }
    return Value::boolean(true);
}

void Interpreter::eval_arguments(const Expr& call, Arguments& arguments) {
    arguments.positional.reserve(call.items.size());
    for (std::size_t i = 1; i < call.items.size(); ++i) {
        arguments.positional.push_back(eval(*call.items[i]));
    }
    if (call.star != nullptr) {
        for (Value& value : items_of(runtime_, eval(*call.star))) {
            arguments.positional.push_back(std::move(value));
        }
    }
    for (const auto& [name, value] : call.named) {
        for (const auto& entry : arguments.named) {
            if (entry.first == name) fail(fmt::format("the argument '{}' is given twice", name));
        }
        arguments.named.emplace_back(name, eval(*value));
    }
    if (call.star_star == nullptr) return;
    const Value more = eval(*call.star_star);
    const auto* dict = more.as<Dict>();
    if (dict == nullptr) fail(fmt::format("'**' needs a mapping, not {}", type_name(more)));
    runtime_.charge_steps(dict->size() * (1 + call.named.size()));
    for (const auto& [key, value] : dict->entries()) {
        const std::string& name = require_string(key, "the name of an argument");
        for (std::size_t i = 0; i < call.named.size(); ++i) {
            if (call.named[i].first == name) {
                fail(fmt::format("the argument '{}' is given twice", name));
            }
        }
        arguments.named.emplace_back(name, value);
    }
}

Value Interpreter::eval_call(const Expr& expr, const Value* caller) {
    const Expr& callee = *expr.items[0];
    Arguments arguments;
    const auto evaluate = [&] {
        eval_arguments(expr, arguments);
        if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
        line_ = expr.line;
    };
    if (callee.kind == ExprKind::attribute) {
        const Value object = eval(*callee.items[0]);
        require_defined(object);
        const MethodEntry* method = find_method(object, callee.constant.str());
        if (method != nullptr && !(method->mutates && runtime_.dialect() == Dialect::reference)) {
            evaluate();
            return method->call(runtime_, object, arguments);
        }
        const Value function = get_attribute(runtime_, object, callee.constant);
        evaluate();
        return call(function, arguments);
    }
    const Value function = eval(callee);
    evaluate();
    return call(function, arguments);
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
    require_defined(callee);
    if (const auto* method = callee.as<Method>()) {
        return method->entry->call(runtime_, method->self, arguments);
    }
    if (const auto* function = callee.as<Function>()) {
        return function->entry->call(runtime_, arguments);
    }
    if (const auto* macro = callee.as<Macro>()) return call_macro(*macro, arguments);
    if (const auto* loop = callee.as<Loop>()) return call_loop(*loop, arguments);
    if (auto* joiner = callee.as<Joiner>()) {
        return std::exchange(joiner->used, true) ? joiner->separator : runtime_.string("");
    }
    fail(fmt::format("a {} can't be called", type_name(callee)));
}

Value Interpreter::eval_filter(const Expr& expr) {
    const Value input = expr.items[0] == nullptr ? block_text_ : eval(*expr.items[0]);
    if (expr.filter == nullptr) fail(fmt::format("unknown filter '{}'", expr.name));
    Arguments arguments;
    eval_arguments(expr, arguments);
    line_ = expr.line;
    return expr.filter->call(runtime_, input, arguments);
}

Value Interpreter::eval_test(const Expr& expr) {
    const Value input = eval(*expr.items[0]);
    if (expr.test == nullptr) fail(fmt::format("unknown test '{}'", expr.name));
    Arguments arguments;
    eval_arguments(expr, arguments);
    line_ = expr.line;
    return Value::boolean(expr.test->call(runtime_, input, arguments));
}

}  // namespace stet::text::jinja
