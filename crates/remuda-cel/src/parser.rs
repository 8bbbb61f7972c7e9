//! Tokens to a tree, by precedence climbing.

mod macros;

use crate::{
    ast::{Entry, Expr, ExprKind, Literal, Select},
    escape::RESERVED,
    lexer::{self, Kind, Token},
    source::Issues,
};

/// How deep an expression may nest, in brackets and as a tree. Every later pass recurses.
pub(crate) const MAX_DEPTH: u32 = 250;
/// The longest source that is looked at, in bytes.
pub(crate) const MAX_SOURCE: usize = 100_000;

/// Binary operators by precedence; all bind to the left.
fn binary(symbol: &str) -> Option<(u8, &'static str)> {
    Some(match symbol {
        "<" => (1, "_<_"),
        "<=" => (1, "_<=_"),
        ">" => (1, "_>_"),
        ">=" => (1, "_>=_"),
        "==" => (1, "_==_"),
        "!=" => (1, "_!=_"),
        "in" => (1, "@in"),
        "+" => (2, "_+_"),
        "-" => (2, "_-_"),
        "*" => (3, "_*_"),
        "/" => (3, "_/_"),
        "%" => (3, "_%_"),
        _ => return None,
    })
}

/// Parses a whole expression. On failure at least one issue is reported.
pub(crate) fn parse(source: &str, issues: &mut Issues) -> Option<Expr> {
    if source.len() > MAX_SOURCE {
        issues.report(
            0,
            format!("expression code point size exceeds limit: size: {}, limit {MAX_SOURCE}", source.len()),
        );
        return None;
    }
    let tokens = match lexer::tokens(source) {
        Ok(tokens) => tokens,
        Err((at, message)) => {
            issues.report(at, message);
            return None;
        }
    };
    let mut parser = Parser { source, tokens, at: 0, depth: 0, issues };
    let before = parser.issues.len();
    let expr = parser.expr().ok()?;
    if parser.token().kind != Kind::End {
        let text = parser.text();
        let _ = parser.fail::<()>(format!("Syntax error: extraneous input '{text}' expecting <EOF>"));
        return None;
    }
    (parser.issues.len() == before).then_some(expr)
}

/// Terms of `&&` or `||`, and where its first operator is.
struct Chain {
    and: bool,
    at: Option<u32>,
    terms: Vec<Expr>,
}

impl Chain {
    fn new(and: bool) -> Self {
        Self { and, at: None, terms: Vec::new() }
    }
}

/// A reported failure: parsing stops.
pub(crate) struct Stop;

struct Parser<'s, 'i> {
    source: &'s str,
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    issues: &'i mut Issues,
}

impl Parser<'_, '_> {
    fn token(&self) -> &Token {
        &self.tokens[self.at]
    }

    fn start(&self) -> u32 {
        self.token().start
    }

    fn bump(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.token().kind, Kind::Symbol(found) if found == symbol)
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        if found {
            self.bump();
        }
        found
    }

    fn text(&self) -> String {
        let token = self.token();
        match token.kind {
            Kind::End => "<EOF>".to_owned(),
            _ => self.source[token.start as usize..token.end as usize].to_owned(),
        }
    }

    fn fail<T>(&mut self, message: impl Into<String>) -> Result<T, Stop> {
        let at = self.start();
        self.issues.report(at, message);
        Err(Stop)
    }

    fn expect(&mut self, symbol: &str) -> Result<u32, Stop> {
        let at = self.start();
        if self.eat(symbol) {
            return Ok(at);
        }
        let text = self.text();
        self.fail(format!("Syntax error: mismatched input '{text}' expecting '{symbol}'"))
    }

    /// Bounds the height of what was built; chains of operators are deep without nesting.
    fn grown(&mut self, expr: Expr) -> Result<Expr, Stop> {
        if expr.height > MAX_DEPTH {
            self.issues.report(expr.at, format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            // A tree too tall must not be dropped recursively either; its height is one over at most.
            return Err(Stop);
        }
        Ok(expr)
    }

    fn expr(&mut self) -> Result<Expr, Stop> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        let mut expr = self.logic()?;
        if self.is("?") {
            expr = self.condition(expr)?;
        }
        self.depth -= 1;
        Ok(expr)
    }

    fn condition(&mut self, condition: Expr) -> Result<Expr, Stop> {
        let at = self.expect("?")?;
        let yes = self.logic()?;
        self.expect(":")?;
        let no = self.expr()?;
        self.grown(Expr::call(at, "_?_:_", vec![condition, yes, no]))
    }

    /// A chain of `||` of chains of `&&`. One frame for both, as every bracket passes here.
    fn logic(&mut self) -> Result<Expr, Stop> {
        let (mut either, mut both) = (Chain::new(false), Chain::new(true));
        loop {
            both.terms.push(self.relation(1)?);
            let at = self.start();
            if self.eat("&&") {
                both.at.get_or_insert(at);
                continue;
            }
            either.terms.push(self.joined(&mut both)?);
            if !self.eat("||") {
                return self.joined(&mut either);
            }
            either.at.get_or_insert(at);
        }
    }

    /// The terms of a chain as one expression; the chain is left empty.
    fn joined(&mut self, chain: &mut Chain) -> Result<Expr, Stop> {
        let mut terms = std::mem::take(&mut chain.terms);
        match (chain.at.take(), terms.pop()) {
            (None, Some(only)) => Ok(only),
            (Some(at), Some(last)) => {
                terms.push(last);
                self.grown(Expr::new(at, ExprKind::Logic { and: chain.and, terms }))
            }
            (_, None) => Err(Stop),
        }
    }

    fn relation(&mut self, lowest: u8) -> Result<Expr, Stop> {
        let mut left = self.unary()?;
        while let Some((precedence, name)) = self.operator(lowest) {
            let at = self.start();
            self.bump();
            let right = self.relation(precedence + 1)?;
            left = self.binary(at, name, left, right)?;
        }
        Ok(left)
    }

    fn operator(&self, lowest: u8) -> Option<(u8, &'static str)> {
        let Kind::Symbol(symbol) = self.token().kind else { return None };
        binary(symbol).filter(|(precedence, _)| *precedence >= lowest)
    }

    fn binary(&mut self, at: u32, name: &str, left: Expr, right: Expr) -> Result<Expr, Stop> {
        self.grown(Expr::call(at, name, vec![left, right]))
    }

    fn unary(&mut self) -> Result<Expr, Stop> {
        if self.is("!") || self.is("-") { self.negated() } else { self.member() }
    }

    fn negated(&mut self) -> Result<Expr, Stop> {
        let at = self.start();
        let (symbol, name) = if self.is("!") { ("!", "!_") } else { ("-", "-_") };
        let mut odd = false;
        // A minus right before a number belongs to the literal.
        while self.is(symbol) && !(symbol == "-" && self.before_number()) {
            self.bump();
            odd = !odd;
        }
        let operand = self.member()?;
        if odd { self.grown(Expr::call(at, name, vec![operand])) } else { Ok(operand) }
    }

    fn before_number(&self) -> bool {
        matches!(self.tokens.get(self.at + 1).map(|token| &token.kind), Some(Kind::Int(_) | Kind::Double(_)))
    }

    fn member(&mut self) -> Result<Expr, Stop> {
        let mut expr = self.primary()?;
        while self.is(".") || self.is("[") || self.is("{") {
            if self.is("{") && expr.qualified().is_none() {
                return Ok(expr);
            }
            expr = self.postfix(expr)?;
        }
        Ok(expr)
    }

    fn postfix(&mut self, operand: Expr) -> Result<Expr, Stop> {
        let at = self.start();
        let expr = if self.eat("[") {
            let name = if self.eat("?") { "_[?_]" } else { "_[_]" };
            let index = self.expr()?;
            self.expect("]")?;
            Expr::call(at, name, vec![operand, index])
        } else if self.eat(".") {
            let optional = self.eat("?");
            let field = self.field()?;
            if !optional && self.is("(") {
                let at = self.start();
                let args = self.args()?;
                self.member_call(at, operand, field, args)?
            } else {
                let mode = if optional { Select::Optional } else { Select::Plain };
                Expr::new(at, ExprKind::Select { operand: Box::new(operand), field, mode })
            }
        } else {
            let name = operand.qualified().unwrap_or_default();
            self.expect("{")?;
            let fields = self.fields()?;
            Expr::new(at, ExprKind::Message { name, fields })
        };
        self.grown(expr)
    }

    fn field(&mut self) -> Result<String, Stop> {
        if let Kind::Ident(name) = &self.token().kind {
            let name = name.clone();
            self.bump();
            return Ok(name);
        }
        let text = self.text();
        self.fail(format!("Syntax error: mismatched input '{text}' expecting IDENTIFIER"))
    }

    fn args(&mut self) -> Result<Vec<Expr>, Stop> {
        self.expect("(")?;
        let mut args = Vec::new();
        while !self.eat(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            args.push(self.expr()?);
        }
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr, Stop> {
        let at = self.start();
        match &self.token().kind {
            Kind::Symbol("(") => {
                self.bump();
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            Kind::Symbol("[") => {
                self.bump();
                self.list(at)
            }
            Kind::Symbol("{") => {
                self.bump();
                self.map(at)
            }
            Kind::Ident(_) => self.name(at),
            // A leading dot means the root namespace, which is the only one.
            Kind::Symbol(".") => {
                self.bump();
                self.name(at)
            }
            _ => self.literal(at),
        }
    }

    fn literal(&mut self, at: u32) -> Result<Expr, Stop> {
        let text = self.text();
        let literal = match self.bump().kind {
            Kind::Symbol("-") => match self.bump().kind {
                Kind::Int(value) => Literal::Int(0i64.wrapping_sub_unsigned(value)),
                Kind::Double(value) => Literal::Double(-value),
                _ => return self.unexpected(at, &text),
            },
            Kind::Symbol("true") => Literal::Bool(true),
            Kind::Symbol("false") => Literal::Bool(false),
            Kind::Symbol("null") => Literal::Null,
            Kind::Int(value) => match i64::try_from(value) {
                Ok(value) => Literal::Int(value),
                Err(_) => {
                    self.issues.report(at, "invalid int literal");
                    return Err(Stop);
                }
            },
            Kind::Uint(value) => Literal::Uint(value),
            Kind::Double(value) => Literal::Double(value),
            Kind::String(text) => Literal::String(text.into()),
            Kind::Bytes(bytes) => Literal::Bytes(bytes.into()),
            Kind::Symbol(_) | Kind::Ident(_) | Kind::End => return self.unexpected(at, &text),
        };
        Ok(Expr::new(at, ExprKind::Literal(literal)))
    }

    fn unexpected<T>(&mut self, at: u32, text: &str) -> Result<T, Stop> {
        self.issues.report(at, format!("Syntax error: mismatched input '{text}' expecting an expression"));
        Err(Stop)
    }

    fn name(&mut self, at: u32) -> Result<Expr, Stop> {
        let name = self.field()?;
        if RESERVED.contains(&name.as_str()) {
            self.issues.report(at, format!("reserved identifier: {name}"));
            return Err(Stop);
        }
        if !self.is("(") {
            return Ok(Expr::new(at, ExprKind::Ident(name)));
        }
        let at = self.start();
        let args = self.args()?;
        let call = self.global_call(at, name, args)?;
        self.grown(call)
    }

    fn list(&mut self, at: u32) -> Result<Expr, Stop> {
        let mut entries = Vec::new();
        while !self.eat("]") {
            if !entries.is_empty() {
                self.expect(",")?;
                if self.eat("]") {
                    break;
                }
            }
            let optional = self.eat("?");
            entries.push(Entry { optional, value: self.expr()? });
        }
        self.grown(Expr::new(at, ExprKind::List(entries)))
    }

    /// Of a message, behind its brace.
    fn fields(&mut self) -> Result<Vec<(String, Entry)>, Stop> {
        let mut fields = Vec::new();
        while !self.eat("}") {
            if !fields.is_empty() {
                self.expect(",")?;
                if self.eat("}") {
                    break;
                }
            }
            let optional = self.eat("?");
            let name = self.field()?;
            self.expect(":")?;
            fields.push((name, Entry { optional, value: self.expr()? }));
        }
        Ok(fields)
    }

    fn map(&mut self, at: u32) -> Result<Expr, Stop> {
        let mut entries = Vec::new();
        while !self.eat("}") {
            if !entries.is_empty() {
                self.expect(",")?;
                if self.eat("}") {
                    break;
                }
            }
            let optional = self.eat("?");
            let key = self.expr()?;
            self.expect(":")?;
            entries.push((key, Entry { optional, value: self.expr()? }));
        }
        self.grown(Expr::new(at, ExprKind::Map(entries)))
    }
}
