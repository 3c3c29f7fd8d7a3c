// The recursive-descent parser: jinja_parser.cpp has the statements, jinja_parser_expr.cpp the
// expressions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"

namespace stet::text::jinja {

// Limits of nesting, so that neither parsing nor walking the tree can exhaust the stack.
inline constexpr std::uint32_t kMaxParseDepth = 100;
inline constexpr std::uint32_t kMaxExprHeight = 250;

class Parser {
  public:
    Parser(std::string_view source, Dialect dialect);
    std::unique_ptr<Program> run();

  private:
    using Words = std::initializer_list<std::string_view>;

    // Counts one level of recursion while it lives.
    class Level {
      public:
        explicit Level(Parser& parser);
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;
        ~Level() { --parser_.depth_; }

      private:
        Parser& parser_;
    };

    // Tokens.
    const Token& current() const { return tokens_[next_]; }
    const Token& look() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
    bool is(TokenKind kind) const { return current().kind == kind; }
    bool is_word(std::string_view word) const {
        return is(TokenKind::name) && current().text == word;
    }
    bool is_word(Words words) const;
    const Token& take();
    bool skip(TokenKind kind);
    bool skip_word(std::string_view word);
    const Token& expect(TokenKind kind, std::string_view what);
    void expect_word(std::string_view word);
    [[noreturn]] void fail_at(std::uint32_t line, std::string message) const;
    [[noreturn]] void fail_here(std::string message) const { fail_at(current().line, message); }

    // Nodes.
    Symbol symbol(const std::string& name);
    Value constant(std::string text) const;
    Expr* make(ExprKind kind, std::uint32_t line, std::vector<const Expr*> items = {});
    const Expr* seal(Expr* expr);  // computes and limits the height
    Stmt* make(StmtKind kind, std::uint32_t line);

    // Statements.
    Block parse_block(Words ends, std::string_view tag);
    Block parse_body(Words ends, std::string_view tag);  // with the "%}" before it
    const Stmt* parse_statement();
    const Stmt* parse_output();
    const Stmt* parse_if();
    const Stmt* parse_for();
    const Stmt* parse_set();
    const Stmt* parse_macro();
    const Stmt* parse_call_block();
    const Stmt* parse_filter_block();
    const Stmt* parse_with();
    const Stmt* parse_generation();
    const Stmt* parse_print();
    const Stmt* parse_loop_control();
    void parse_signature(Signature& signature);
    Block parse_function_body(Signature& signature, std::string_view end, std::string_view tag);
    const Expr* parse_target(bool with_member);
    const Expr* parse_single_target(bool with_member);
    [[noreturn]] void fail_unknown_tag() const;

    // Expressions, weakest binding first.
    const Expr* parse_tuple(bool conditional, std::string_view end_word = {},
                            bool parenthesised = false);
    const Expr* parse_expression(bool conditional = true);
    const Expr* parse_conditional();
    const Expr* parse_or();
    const Expr* parse_and();
    const Expr* parse_not();
    const Expr* parse_compare();
    const Expr* parse_sum();
    const Expr* parse_concat();
    const Expr* parse_product();
    const Expr* parse_power();
    const Expr* parse_unary(bool with_filters);
    const Expr* parse_primary();
    const Expr* parse_name();
    const Expr* parse_number();
    const Expr* parse_list();
    const Expr* parse_dict();
    const Expr* parse_postfix(const Expr* base);
    const Expr* parse_filters_and_tests(const Expr* base);
    const Expr* parse_subscript(const Expr* base);
    const Expr* parse_index(const Expr* base);
    const Expr* parse_call(const Expr* base);
    const Expr* parse_filter(const Expr* input);
    const Expr* parse_filter_chain(const Expr* input, bool starts_inline);
    const Expr* parse_test(const Expr* base);
    void parse_arguments(Expr& call);
    std::string parse_dotted_name();
    bool at_tuple_end(std::string_view end_word) const;

    std::vector<Token> tokens_;
    std::size_t next_ = 0;
    std::uint32_t depth_ = 0;
    std::uint32_t loop_depth_ = 0;       // loops around, within the innermost macro
    bool conditional_ = false;           // directly in a branch: unknown filters may stay unused
    std::vector<Signature*> functions_;  // macros and call blocks around
    std::unique_ptr<Program> program_;
};

}  // namespace stet::text::jinja
