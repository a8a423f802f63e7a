//! A scanner for Rust source: which bytes are code, and where each function begins and ends.
//!
//! It knows strings, raw strings, nested comments, and the difference between a character and a
//! lifetime. It does not expand macros: braces in a macro's body must balance, which the compiler
//! demands as well.

/// The text with every comment and every literal's content replaced by spaces. Newlines stay, so that
/// positions and line numbers are those of the text.
pub(super) fn code(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment(text, at);
        if end == at {
            code.push(bytes[at]);
            at += 1;
        } else {
            code.extend(bytes[at..end].iter().map(|&b| if b == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    code
}

/// The end of the literal or comment that begins at `at`, or `at` if none does.
fn literal_or_comment(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return at + block_comment(rest);
    }
    match rest[0] {
        b'"' => at + string(rest),
        b'\'' => at + character(&text[at..]),
        b'r' if at == 0 || !is_word(before_prefix(bytes, at)) => at + raw_string(rest),
        _ => at,
    }
}

/// The byte in front of a literal's `r`, or in front of the `b` or `c` of `br` and `cr`.
fn before_prefix(bytes: &[u8], at: usize) -> u8 {
    match bytes[at - 1] {
        b'b' | b'c' => at.checked_sub(2).map_or(b' ', |at| bytes[at]),
        other => other,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The length of a block comment, which may hold others.
fn block_comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The length of a string with escapes.
fn string(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The length of a raw string, or 0 if `r` begins a word or a raw identifier.
fn raw_string(bytes: &[u8]) -> usize {
    let hashes = bytes[1..].iter().take_while(|&&b| b == b'#').count();
    if bytes.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end = [b"\"".as_slice(), &bytes[1..=hashes]].concat();
    let body = 2 + hashes;
    let found = bytes[body..].windows(end.len()).position(|window| window == end);
    found.map_or(bytes.len(), |at| body + at + end.len())
}

/// The length of a character literal, or 0 if the quote begins a lifetime or a label.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The escaped character itself may be a quote.
            let rest = chars.nth(1).map_or("", |(at, _)| &text[at..]);
            text.len() - rest.len() + rest.find('\'').map_or(rest.len(), |at| at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// A function with a body: its name, and its lines, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Function {
    /// From the line of `fn` to the line of the closing brace.
    pub(super) fn lines(&self) -> usize {
        self.last - self.first + 1
    }
}

/// Every function with a body, nested ones too, in code from [`code`].
pub(super) fn functions(code: &[u8]) -> Vec<Function> {
    let mut found = Vec::new();
    let newlines: Vec<usize> =
        code.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at).collect();
    let line = |at: usize| 1 + newlines.partition_point(|&newline| newline < at);
    for at in 0..code.len().saturating_sub(2) {
        let begins = code[at] == b'f' && (at == 0 || !is_word(code[at - 1]));
        if !begins || code[at + 1] != b'n' || is_word(code[at + 2]) {
            continue;
        }
        let after = at + 2 + code[at + 2..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let name: Vec<u8> = code[after..].iter().copied().take_while(|&b| is_word(b)).collect();
        if name.is_empty() {
            continue; // the type of a function pointer
        }
        let Some(open) = body(code, after) else { continue };
        let close = matching_brace(code, open);
        let name = String::from_utf8_lossy(&name).into_owned();
        found.push(Function { name, first: line(at), last: line(close) });
    }
    found
}

/// Where a function's body opens; `None` if it has none, as in a trait.
fn body(code: &[u8], signature: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(signature) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None; // inside a macro's pattern
        }
    }
    None
}

fn matching_brace(code: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code of a text, which must keep its length and its lines; spaces squeezed.
    fn kept(text: &str) -> String {
        let code = code(text);
        assert_eq!(code.len(), text.len());
        let lines = |bytes: &[u8]| bytes.iter().filter(|&&b| b == b'\n').count();
        assert_eq!(lines(&code), lines(text.as_bytes()));
        let code = String::from_utf8(code).unwrap();
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn found(text: &str) -> Vec<(String, usize, usize)> {
        let all = functions(&code(text));
        all.into_iter().map(|f| (f.name, f.first, f.last)).collect()
    }

    #[test]
    fn comments_are_blank() {
        assert_eq!(kept("a // { x\nb"), "a b");
        assert_eq!(kept("a /* { /* } */ { */ b"), "a b");
        assert_eq!(kept("a /* {\n} */ b"), "a b");
        assert_eq!(kept("a / b * c"), "a / b * c");
        assert_eq!(kept("a /* not closed {"), "a");
    }

    #[test]
    fn strings_are_blank() {
        assert_eq!(kept(r#"a("{", "\"{", "\\", x)"#), "a( , , , x)");
        assert_eq!(kept("\"http://x\" }"), "}");
        assert_eq!(kept("b\"{\" c\"{\" }"), "b c }");
        assert_eq!(kept("\"a {\n b {\" }"), "}");
        assert_eq!(kept("\"not closed {"), "");
    }

    #[test]
    fn raw_strings_are_blank() {
        assert_eq!(kept("x(r\"\\\") }"), "x( ) }");
        assert_eq!(kept("x(r#\"a\"{\"#) }"), "x( ) }");
        assert_eq!(kept("x(br##\"\"#{\"##) }"), "x(b ) }");
        assert_eq!(kept("r#fn + for\"{\""), "r#fn + for");
    }

    #[test]
    fn characters_are_blank_and_lifetimes_stay() {
        assert_eq!(kept(r"'{' b'{' '\'' '\\' '\u{7b}' 'é' '}' }"), "b }");
        assert_eq!(kept("<'a> &'a {} 'outer: {"), "<'a> &'a {} 'outer: {");
        assert_eq!(kept("x == '\"' && \"{\" == y"), "x == && == y");
    }

    #[test]
    fn functions_and_their_lines() {
        let text = "fn one() {\n}\n\nimpl X {\n    pub(crate) const fn two(a: [u8; 4])\n    -> u8\n    {\n        fn inner() { if x {} }\n        \"}\"\n    }\n}\n";
        let names = [("one", 1, 2), ("two", 5, 10), ("inner", 8, 8)];
        assert_eq!(found(text), names.map(|(name, first, last)| (name.to_owned(), first, last)));
    }

    #[test]
    fn what_has_no_body_is_no_function() {
        assert_eq!(found("trait T { fn a(&self); fn b(&self) -> [u8; 2]; }"), []);
        assert_eq!(found("type F = fn(u8) -> u8; struct S { f: fn(), define: u8 }"), []);
        assert_eq!(found("macro_rules! m { ($n:ident) => { fn $n() {} } }"), []);
        assert_eq!(found("// fn a() {}\nlet x = \"fn b() {}\";"), []);
    }

    #[test]
    fn generics_and_closures() {
        let text = "fn a<F: Fn(&str) -> Vec<u8>>(f: F) where F: Send {\n f(|| { 1 })\n}";
        assert_eq!(found(text), [("a".to_owned(), 1, 3)]);
    }
}
