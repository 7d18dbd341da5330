//! The schema that everything is in.

/// A schema's name, as it is; statements get it quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaName(String);

impl SchemaName {
    /// The schema `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name, as it is.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as an identifier in a statement.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }

    /// A statement's text, with the schema where it says `{s}`, and with `{l}` the schema inside a literal.
    pub(crate) fn fill(&self, template: &str) -> String {
        let quoted = self.quoted();
        template.replace("{s}", &quoted).replace("{l}", &quoted.replace('\'', "''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out() {
        let schema = SchemaName::new("a\"b'c");
        assert_eq!(schema.fill("{s}.t '{l}.t'"), "\"a\"\"b'c\".t '\"a\"\"b''c\".t'");
    }
}
