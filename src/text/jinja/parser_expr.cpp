#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "text/jinja/parser_impl.h"

namespace stet::text::jinja {

Value Parser::constant(std::string text) const {
    return Value::string(std::make_shared<Text>(std::move(text), nullptr));
}

Expr* Parser::make(ExprKind kind, std::uint32_t line, std::vector<const Expr*> items) {
    Expr& expr = program_->exprs.emplace_back();
    expr.kind = kind;
    expr.line = line;
    expr.items = std::move(items);
    expr.conditional = conditional_;
    return &expr;
}

const Expr* Parser::seal(Expr* expr) {
    std::uint32_t height = 0;
    const auto add = [&](const Expr* child) {
        if (child != nullptr) height = std::max(height, child->height);
    };
    for (const Expr* item : expr->items) add(item);
    for (const auto& [name, value] : expr->named) add(value);
    add(expr->star);
    add(expr->star_star);
    expr->height = height + 1;
    if (expr->height > kMaxExprHeight) {
        fail_at(expr->line,
                fmt::format("an expression has more than {} nested operations", kMaxExprHeight));
    }
    return expr;
}

bool Parser::at_tuple_end(std::string_view end_word) const {
    return is(TokenKind::variable_end) || is(TokenKind::block_end) || is(TokenKind::rparen) ||
           (!end_word.empty() && is_word(end_word));
}

const Expr* Parser::parse_tuple(bool conditional, std::string_view end_word, bool parenthesised) {
    const std::uint32_t line = current().line;
    std::vector<const Expr*> items;
    bool is_tuple = false;
    for (;;) {
        if (!items.empty()) expect(TokenKind::comma, "','");
        if (at_tuple_end(end_word)) break;
        items.push_back(parse_expression(conditional));
        if (!is(TokenKind::comma)) break;
        is_tuple = true;
    }
    if (!is_tuple) {
        if (!items.empty()) return items.front();
        if (!parenthesised) {
            fail_here(fmt::format("expected an expression, found {}", describe(current())));
        }
    }
    return seal(make(ExprKind::tuple, line, std::move(items)));
}

const Expr* Parser::parse_expression(bool conditional) {
    const Level level(*this);
    return conditional ? parse_conditional() : parse_or();
}

const Expr* Parser::parse_conditional() {
    std::size_t first = program_->exprs.size();
    const Expr* value = parse_or();
    while (is_word("if")) {
        const std::uint32_t line = take().line;
        const Expr* condition = parse_or();
        const Expr* otherwise = nullptr;
        if (skip_word("else")) {
            const Level level(*this);
            otherwise = parse_conditional();
        }
        // What may not be evaluated may name filters that don't exist.
        for (; first < program_->exprs.size(); ++first) {
            program_->exprs[first].conditional = true;
        }
        value = seal(make(ExprKind::conditional, line, {value, condition, otherwise}));
    }
    return value;
}

const Expr* Parser::parse_or() {
    const Expr* left = parse_and();
    while (is_word("or")) {
        const std::uint32_t line = take().line;
        left = seal(make(ExprKind::or_, line, {left, parse_and()}));
    }
    return left;
}

const Expr* Parser::parse_and() {
    const Expr* left = parse_not();
    while (is_word("and")) {
        const std::uint32_t line = take().line;
        left = seal(make(ExprKind::and_, line, {left, parse_not()}));
    }
    return left;
}

const Expr* Parser::parse_not() {
    if (!is_word("not")) return parse_compare();
    const Level level(*this);
    const std::uint32_t line = take().line;
    return seal(make(ExprKind::not_, line, {parse_not()}));
}

const Expr* Parser::parse_compare() {
    const std::uint32_t line = current().line;
    const Expr* first = parse_sum();
    std::vector<const Expr*> items = {first};
    std::vector<Comparison> operators;
    for (;;) {
        Comparison op{};
        switch (current().kind) {
            case TokenKind::eq:
                op = Comparison::eq;
                break;
            case TokenKind::ne:
                op = Comparison::ne;
                break;
            case TokenKind::lt:
                op = Comparison::lt;
                break;
            case TokenKind::le:
                op = Comparison::le;
                break;
            case TokenKind::gt:
                op = Comparison::gt;
                break;
            case TokenKind::ge:
                op = Comparison::ge;
                break;
            default: {
                const bool negated =
                    is_word("not") && look().kind == TokenKind::name && look().text == "in";
                if (!negated && !is_word("in")) {
                    if (operators.empty()) return first;
                    Expr* compare = make(ExprKind::compare, line, std::move(items));
                    compare->operators = std::move(operators);
                    return seal(compare);
                }
                if (negated) take();
                op = negated ? Comparison::not_in : Comparison::in;
            }
        }
        take();
        operators.push_back(op);
        items.push_back(parse_sum());
    }
}

const Expr* Parser::parse_sum() {
    const Expr* left = parse_concat();
    while (is(TokenKind::add) || is(TokenKind::sub)) {
        const Token& op = take();
        Expr* sum = make(ExprKind::arithmetic, op.line, {left});
        sum->op = op.kind;
        sum->items.push_back(parse_concat());
        left = seal(sum);
    }
    return left;
}

const Expr* Parser::parse_concat() {
    const std::uint32_t line = current().line;
    std::vector<const Expr*> items = {parse_product()};
    while (skip(TokenKind::tilde)) items.push_back(parse_product());
    if (items.size() == 1) return items.front();
    return seal(make(ExprKind::concat, line, std::move(items)));
}

const Expr* Parser::parse_product() {
    const Expr* left = parse_power();
    while (is(TokenKind::mul) || is(TokenKind::div) || is(TokenKind::floordiv) ||
           is(TokenKind::mod)) {
        const Token& op = take();
        Expr* product = make(ExprKind::arithmetic, op.line, {left});
        product->op = op.kind;
        product->items.push_back(parse_power());
        left = seal(product);
    }
    return left;
}

const Expr* Parser::parse_power() {
    const Expr* left = parse_unary(true);
    while (is(TokenKind::pow)) {
        const Token& op = take();
        Expr* power = make(ExprKind::arithmetic, op.line, {left});
        power->op = op.kind;
        power->items.push_back(parse_unary(true));
        left = seal(power);
    }
    return left;
}

const Expr* Parser::parse_unary(bool with_filters) {
    const Expr* value = nullptr;
    if (is(TokenKind::sub) || is(TokenKind::add)) {
        const Level level(*this);
        const Token& op = take();
        const ExprKind kind = op.kind == TokenKind::sub ? ExprKind::negative : ExprKind::positive;
        value = seal(make(kind, op.line, {parse_unary(false)}));
    } else {
        value = parse_primary();
    }
    value = parse_postfix(value);
    return with_filters ? parse_filters_and_tests(value) : value;
}

const Expr* Parser::parse_primary() {
    const std::uint32_t line = current().line;
    switch (current().kind) {
        case TokenKind::name:
            return parse_name();
        case TokenKind::integer:
        case TokenKind::real:
            return parse_number();
        case TokenKind::lbracket:
            return parse_list();
        case TokenKind::lbrace:
            return parse_dict();
        case TokenKind::string: {
            std::string text;
            while (is(TokenKind::string)) text += take().text;
            Expr* string = make(ExprKind::constant, line);
            string->constant = constant(std::move(text));
            return string;
        }
        case TokenKind::lparen: {
            take();
            const Expr* inner = parse_tuple(true, {}, true);
            expect(TokenKind::rparen, "')'");
            return inner;
        }
        default:
            break;
    }
    fail_here(fmt::format("unexpected {}", describe(current())));
}

const Expr* Parser::parse_name() {
    const Token& token = take();
    const std::string& name = token.text;
    Expr* constant = make(ExprKind::constant, token.line);
    if (name == "true" || name == "True") {
        constant->constant = Value::boolean(true);
    } else if (name == "false" || name == "False") {
        constant->constant = Value::boolean(false);
    } else if (name != "none" && name != "None") {
        constant->kind = ExprKind::name;
        constant->symbol = symbol(name);
        constant->name = name;
        for (Signature* function : functions_) {
            function->uses_varargs |= name == "varargs";
            function->uses_kwargs |= name == "kwargs";
            function->uses_caller |= name == "caller";
        }
    }
    return constant;
}

const Expr* Parser::parse_number() {
    const Token& token = take();
    Expr* number = make(ExprKind::constant, token.line);
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    if (token.kind == TokenKind::real) {
        double value = 0;
        if (std::from_chars(begin, end, value).ec != std::errc()) {
            value = token.text.find("e-") != std::string::npos ||
                            token.text.find("E-") != std::string::npos
                        ? 0.0
                        : std::numeric_limits<double>::infinity();
        }
        number->constant = Value::real(value);
        return number;
    }
    int base = 10;
    if (token.text.size() > 2) {
        const char kind = static_cast<char>(token.text[1] | 0x20);
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    }
    if (base != 10) begin += 2;
    std::int64_t value = 0;
    if (std::from_chars(begin, end, value, base).ec != std::errc()) {
        fail_at(token.line, "an integer is beyond 64 bits");
    }
    number->constant = Value::integer(value);
    return number;
}

const Expr* Parser::parse_list() {
    const std::uint32_t line = take().line;
    std::vector<const Expr*> items;
    while (!is(TokenKind::rbracket)) {
        if (!items.empty()) expect(TokenKind::comma, "',' or ']'");
        if (is(TokenKind::rbracket)) break;
        items.push_back(parse_expression());
    }
    take();
    return seal(make(ExprKind::list, line, std::move(items)));
}

const Expr* Parser::parse_dict() {
    const std::uint32_t line = take().line;
    std::vector<const Expr*> items;
    while (!is(TokenKind::rbrace)) {
        if (!items.empty()) expect(TokenKind::comma, "',' or '}'");
        if (is(TokenKind::rbrace)) break;
        items.push_back(parse_expression());
        expect(TokenKind::colon, "':'");
        items.push_back(parse_expression());
    }
    take();
    return seal(make(ExprKind::dict, line, std::move(items)));
}

const Expr* Parser::parse_postfix(const Expr* base) {
    for (;;) {
        if (is(TokenKind::dot) || is(TokenKind::lbracket)) {
            base = parse_subscript(base);
        } else if (is(TokenKind::lparen)) {
            base = parse_call(base);
        } else {
            return base;
        }
    }
}

const Expr* Parser::parse_filters_and_tests(const Expr* base) {
    for (;;) {
        if (is(TokenKind::pipe)) {
            base = parse_filter_chain(base, false);
        } else if (is_word("is")) {
            base = parse_test(base);
        } else if (is(TokenKind::lparen)) {
            base = parse_call(base);
        } else {
            return base;
        }
    }
}

const Expr* Parser::parse_subscript(const Expr* base) {
    const Token& open = take();
    if (open.kind == TokenKind::lbracket) return parse_index(base);
    if (is(TokenKind::integer)) {
        const Expr* index = parse_number();
        return seal(make(ExprKind::item, open.line, {base, index}));
    }
    Expr* attribute = make(ExprKind::attribute, open.line, {base});
    attribute->constant = constant(expect(TokenKind::name, "a name or number after '.'").text);
    return seal(attribute);
}

// Behind "[".
const Expr* Parser::parse_index(const Expr* base) {
    const std::uint32_t line = current().line;
    std::vector<const Expr*> parts;
    bool slice = false;
    while (!is(TokenKind::rbracket)) {
        if (!parts.empty()) {
            expect(TokenKind::comma, "']'");
            if (slice) fail_here("slices of more than one dimension are not supported");
        }
        const Expr* first = is(TokenKind::colon) ? nullptr : parse_expression();
        if (!is(TokenKind::colon)) {
            parts.push_back(first);
            continue;
        }
        if (!parts.empty()) fail_here("slices of more than one dimension are not supported");
        slice = true;
        parts = {base, first, nullptr, nullptr};
        for (std::size_t i = 2; i < 4 && skip(TokenKind::colon); ++i) {
            if (!is(TokenKind::colon) && !is(TokenKind::rbracket) && !is(TokenKind::comma)) {
                parts[i] = parse_expression();
            }
        }
    }
    take();
    if (slice) return seal(make(ExprKind::slice, line, std::move(parts)));
    const Expr* key =
        parts.size() == 1 ? parts.front() : seal(make(ExprKind::tuple, line, std::move(parts)));
    return seal(make(ExprKind::item, line, {base, key}));
}

void Parser::parse_arguments(Expr& call) {
    const std::uint32_t line = expect(TokenKind::lparen, "'('").line;
    const auto require = [&](bool fine) {
        if (!fine) fail_at(line, "the arguments of a call are in a wrong order");
    };
    bool first = true;
    while (!is(TokenKind::rparen)) {
        if (!first) {
            expect(TokenKind::comma, "',' or ')'");
            if (is(TokenKind::rparen)) break;
        }
        first = false;
        if (skip(TokenKind::mul)) {
            require(call.star == nullptr && call.star_star == nullptr);
            call.star = parse_expression();
        } else if (skip(TokenKind::pow)) {
            require(call.star_star == nullptr);
            call.star_star = parse_expression();
        } else if (is(TokenKind::name) && look().kind == TokenKind::assign) {
            require(call.star_star == nullptr);
            std::string name = take().text;
            take();
            call.named.emplace_back(std::move(name), parse_expression());
        } else {
            require(call.star == nullptr && call.star_star == nullptr && call.named.empty());
            call.items.push_back(parse_expression());
        }
    }
    take();
}

const Expr* Parser::parse_call(const Expr* base) {
    Expr* call = make(ExprKind::call, current().line, {base});
    parse_arguments(*call);
    return seal(call);
}

std::string Parser::parse_dotted_name() {
    std::string name = expect(TokenKind::name, "a name").text;
    while (skip(TokenKind::dot)) name += "." + expect(TokenKind::name, "a name").text;
    return name;
}

const Expr* Parser::parse_filter(const Expr* input) {
    Expr* filter = make(ExprKind::filter, current().line, {input});
    filter->name = parse_dotted_name();
    filter->filter = find_filter(filter->name);
    if (is(TokenKind::lparen)) parse_arguments(*filter);
    return seal(filter);
}

const Expr* Parser::parse_filter_chain(const Expr* input, bool starts_inline) {
    if (starts_inline) input = parse_filter(input);
    while (skip(TokenKind::pipe)) input = parse_filter(input);
    return input;
}

const Expr* Parser::parse_test(const Expr* base) {
    const std::uint32_t line = take().line;  // "is"
    const bool negated = skip_word("not");
    Expr* test = make(ExprKind::test, line, {base});
    test->name = parse_dotted_name();
    test->test = find_test(test->name);
    switch (current().kind) {
        case TokenKind::lparen:
            parse_arguments(*test);
            break;
        case TokenKind::name:
            if (is_word({"else", "or", "and"})) break;
            if (is_word("is")) fail_here("tests with 'is' can't be chained");
            [[fallthrough]];
        case TokenKind::string:
        case TokenKind::integer:
        case TokenKind::real:
        case TokenKind::lbracket:
        case TokenKind::lbrace: {
            const Level level(*this);
            test->items.push_back(parse_postfix(parse_primary()));
            break;
        }
        default:
            break;
    }
    const Expr* result = seal(test);
    return negated ? seal(make(ExprKind::not_, line, {result})) : result;
}

}  // namespace stet::text::jinja
