#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/parser_impl.h"

namespace stet::text::jinja {

Parser::Level::Level(Parser& parser) : parser_(parser) {
    if (parser.depth_ >= kMaxParseDepth) {
        parser.fail_here(
            fmt::format("tags or expressions are nested deeper than {}", kMaxParseDepth));
    }
    ++parser.depth_;
}

Parser::Parser(std::string_view source, Dialect dialect)
    : tokens_(tokenize(source)), program_(std::make_unique<Program>()) {
    program_->dialect = dialect;
    program_->known = {symbol("loop"), symbol("caller"), symbol("varargs"), symbol("kwargs")};
    for (const FunctionEntry& function : global_functions()) symbol(std::string(function.name));
}

std::unique_ptr<Program> Parser::run() {
    program_->body = parse_block({}, {});
    for (const Expr& expr : program_->exprs) {
        if (expr.conditional) continue;
        if (expr.kind == ExprKind::filter && expr.filter == nullptr) {
            fail_at(expr.line, fmt::format("unknown filter '{}'", expr.name.substr(0, 64)));
        }
        if (expr.kind == ExprKind::test && expr.test == nullptr) {
            fail_at(expr.line, fmt::format("unknown test '{}'", expr.name.substr(0, 64)));
        }
    }
    return std::move(program_);
}

bool Parser::is_word(Words words) const {
    return is(TokenKind::name) &&
           std::find(words.begin(), words.end(), current().text) != words.end();
}

const Token& Parser::take() {
    const Token& token = current();
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
}

bool Parser::skip(TokenKind kind) {
    if (!is(kind)) return false;
    take();
    return true;
}

bool Parser::skip_word(std::string_view word) {
    if (!is_word(word)) return false;
    take();
    return true;
}

const Token& Parser::expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail_here(fmt::format("expected {}, found {}", what, describe(current())));
    return take();
}

void Parser::expect_word(std::string_view word) {
    if (!is_word(word)) {
        fail_here(fmt::format("expected '{}', found {}", word, describe(current())));
    }
    take();
}

void Parser::fail_at(std::uint32_t line, std::string message) const {
    fail(std::move(message), line);
}

Symbol Parser::symbol(const std::string& name) {
    const auto next = static_cast<Symbol>(program_->symbols.size());
    return program_->symbols.emplace(name, next).first->second;
}

Stmt* Parser::make(StmtKind kind, std::uint32_t line) {
    Stmt& stmt = program_->stmts.emplace_back();
    stmt.kind = kind;
    stmt.line = line;
    return &stmt;
}

Block Parser::parse_block(Words ends, std::string_view tag) {
    const Level level(*this);
    Block block;
    const std::uint32_t start = current().line;
    while (!is(TokenKind::end)) {
        if (is(TokenKind::data)) {
            Stmt* data = make(StmtKind::data, current().line);
            data->data = constant(take().text);
            block.push_back(data);
        } else if (is(TokenKind::variable_begin)) {
            block.push_back(parse_output());
        } else {
            take();  // "{%"
            if (is_word(ends)) return block;
            block.push_back(parse_statement());
            expect(TokenKind::block_end, "'%}'");
        }
    }
    if (ends.size() != 0) {
        fail_here(fmt::format("the template ends inside the '{}' of line {}", tag, start));
    }
    return block;
}

Block Parser::parse_body(Words ends, std::string_view tag) {
    skip(TokenKind::colon);
    expect(TokenKind::block_end, "'%}'");
    return parse_block(ends, tag);
}

const Stmt* Parser::parse_output() {
    Stmt* output = make(StmtKind::output, take().line);
    output->exprs.push_back(parse_tuple(true));
    expect(TokenKind::variable_end, "'}}'");
    return output;
}

const Stmt* Parser::parse_statement() {
    if (!is(TokenKind::name)) {
        fail_here(fmt::format("expected the name of a tag, found {}", describe(current())));
    }
    const std::string& name = current().text;
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call_block();
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "print") return parse_print();
    if (name == "break" || name == "continue") return parse_loop_control();
    if (name == "generation" && program_->dialect == Dialect::extended) return parse_generation();
    fail_unknown_tag();
}

void Parser::fail_unknown_tag() const {
    const std::string name = current().text.substr(0, 64);
    for (const std::string_view other : {"include", "import", "from", "extends", "block"}) {
        if (name == other) {
            fail_here(
                fmt::format("the tag '{}' is not supported: a chat template is one file", name));
        }
    }
    fail_here(fmt::format("unknown tag '{}'", name));
}

const Stmt* Parser::parse_if() {
    Stmt* stmt = make(StmtKind::if_, current().line);
    const bool outer = std::exchange(conditional_, true);
    for (;;) {
        take();  // "if" or "elif"
        const Expr* condition = parse_tuple(false);
        stmt->branches.emplace_back(condition, parse_body({"elif", "else", "endif"}, "if"));
        if (!is_word("elif")) break;
    }
    if (skip_word("else")) stmt->otherwise = parse_body({"endif"}, "if");
    take();  // "endif"
    conditional_ = outer;
    return stmt;
}

const Stmt* Parser::parse_for() {
    Stmt* stmt = make(StmtKind::for_, take().line);
    const std::size_t first = program_->exprs.size();
    stmt->target = parse_target(false);
    for (std::size_t i = first; i < program_->exprs.size(); ++i) {
        if (program_->exprs[i].name == "loop") fail_here("a loop can't assign to 'loop'");
    }
    expect_word("in");
    stmt->exprs.push_back(parse_tuple(false, "recursive"));
    // As in Jinja2, all but what is looped over is a part of its own, whatever is around the loop.
    const bool outer = std::exchange(conditional_, false);
    if (skip_word("if")) stmt->condition = parse_expression();
    stmt->recursive = skip_word("recursive");
    ++loop_depth_;
    stmt->body = parse_body({"endfor", "else"}, "for");
    --loop_depth_;
    if (skip_word("else")) stmt->otherwise = parse_body({"endfor"}, "for");
    take();  // "endfor"
    conditional_ = outer;
    return stmt;
}

const Stmt* Parser::parse_set() {
    const std::uint32_t line = take().line;
    const Expr* target = parse_target(true);
    if (skip(TokenKind::assign)) {
        Stmt* stmt = make(StmtKind::set, line);
        stmt->target = target;
        stmt->exprs.push_back(parse_tuple(true));
        return stmt;
    }
    Stmt* stmt = make(StmtKind::set_block, line);
    stmt->target = target;
    const bool outer = std::exchange(conditional_, false);
    stmt->exprs.push_back(parse_filter_chain(nullptr, false));
    stmt->body = parse_body({"endset"}, "set");
    conditional_ = outer;
    take();
    return stmt;
}

void Parser::parse_signature(Signature& signature) {
    const bool outer = std::exchange(conditional_, false);
    expect(TokenKind::lparen, "'('");
    while (!is(TokenKind::rparen)) {
        if (!signature.parameters.empty()) expect(TokenKind::comma, "','");
        const std::string name = expect(TokenKind::name, "the name of a parameter").text;
        if (skip(TokenKind::assign)) {
            signature.defaults.push_back(parse_expression());
        } else if (name == "caller") {
            fail_here("the parameter 'caller' needs a default");
        } else if (!signature.defaults.empty()) {
            fail_here("a parameter without a default follows one with a default");
        }
        for (const auto& [other, text] : signature.parameters) {
            if (text == name) fail_here(fmt::format("two parameters are named '{}'", name));
        }
        signature.parameters.emplace_back(symbol(name), name);
    }
    conditional_ = outer;
    take();
}

Block Parser::parse_function_body(Signature& signature, std::string_view end,
                                  std::string_view tag) {
    const bool outer = std::exchange(conditional_, false);
    const std::uint32_t loops = std::exchange(loop_depth_, 0);
    functions_.push_back(&signature);
    Block body = parse_body({end}, tag);
    functions_.pop_back();
    loop_depth_ = loops;
    conditional_ = outer;
    take();
    return body;
}

const Stmt* Parser::parse_macro() {
    Stmt* stmt = make(StmtKind::macro, take().line);
    Signature& signature = stmt->signature;
    signature.name_text = expect(TokenKind::name, "the name of a macro").text;
    signature.name = symbol(signature.name_text);
    parse_signature(signature);
    stmt->body = parse_function_body(signature, "endmacro", "macro");
    return stmt;
}

const Stmt* Parser::parse_call_block() {
    Stmt* stmt = make(StmtKind::call_block, take().line);
    stmt->signature.name_text = "caller";
    if (is(TokenKind::lparen)) parse_signature(stmt->signature);
    const Expr* call = parse_expression();
    if (call->kind != ExprKind::call) fail_at(stmt->line, "the tag 'call' needs a call");
    stmt->exprs.push_back(call);
    stmt->body = parse_function_body(stmt->signature, "endcall", "call");
    return stmt;
}

const Stmt* Parser::parse_filter_block() {
    Stmt* stmt = make(StmtKind::filter_block, take().line);
    const bool outer = std::exchange(conditional_, false);
    stmt->exprs.push_back(parse_filter_chain(nullptr, true));
    stmt->body = parse_body({"endfilter"}, "filter");
    conditional_ = outer;
    take();
    return stmt;
}

const Stmt* Parser::parse_with() {
    Stmt* stmt = make(StmtKind::with, take().line);
    while (!is(TokenKind::block_end)) {
        if (!stmt->exprs.empty()) expect(TokenKind::comma, "','");
        stmt->exprs.push_back(parse_target(false));
        expect(TokenKind::assign, "'='");
        stmt->exprs.push_back(parse_expression());
    }
    const bool outer = std::exchange(conditional_, false);
    stmt->body = parse_body({"endwith"}, "with");
    conditional_ = outer;
    take();
    return stmt;
}

const Stmt* Parser::parse_generation() {
    Stmt* stmt = make(StmtKind::scope, take().line);
    stmt->body = parse_body({"endgeneration"}, "generation");
    take();
    return stmt;
}

const Stmt* Parser::parse_print() {
    Stmt* stmt = make(StmtKind::output, take().line);
    while (!is(TokenKind::block_end)) {
        if (!stmt->exprs.empty()) expect(TokenKind::comma, "','");
        stmt->exprs.push_back(parse_expression());
    }
    return stmt;
}

const Stmt* Parser::parse_loop_control() {
    const Token& token = take();
    if (loop_depth_ == 0) fail_at(token.line, fmt::format("'{}' outside of a loop", token.text));
    return make(token.text == "break" ? StmtKind::break_ : StmtKind::continue_, token.line);
}

const Expr* Parser::parse_single_target(bool with_member) {
    const Level level(*this);
    const std::uint32_t line = current().line;
    if (skip(TokenKind::lparen)) {
        const Expr* inner = parse_target(with_member);
        expect(TokenKind::rparen, "')'");
        return inner;
    }
    const std::string name = expect(TokenKind::name, "the name of a variable").text;
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
        if (name == reserved) fail_at(line, fmt::format("can't assign to '{}'", name));
    }
    const bool member = with_member && skip(TokenKind::dot);
    Expr* target = make(member ? ExprKind::member : ExprKind::name, line);
    target->symbol = symbol(name);
    target->name = name;
    if (member) target->constant = constant(expect(TokenKind::name, "an attribute").text);
    return target;
}

const Expr* Parser::parse_target(bool with_member) {
    const std::uint32_t line = current().line;
    std::vector<const Expr*> items = {parse_single_target(with_member)};
    if (!is(TokenKind::comma)) return items.front();
    while (skip(TokenKind::comma)) {
        if (is(TokenKind::block_end) || is(TokenKind::rparen)) break;
        items.push_back(parse_single_target(with_member));
    }
    return seal(make(ExprKind::tuple, line, std::move(items)));
}

std::unique_ptr<Program> parse(std::string_view source, Dialect dialect) {
    return Parser(source, dialect).run();
}

}  // namespace stet::text::jinja
