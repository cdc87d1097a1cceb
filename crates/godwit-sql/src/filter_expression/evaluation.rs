//! Evaluates filter expressions with the values of one read, as `hts_expr.c` of htslib 1.19 does.
//!
//! Results are written over the values of operands, and parts that an operation does not set keep their content, as in
//! htslib. A value does not exist if it is a text without content or a number that is NaN.

use super::{ChainOperator, Comparison, Function, Node, Symbol, UnaryOperator};

/// The source of the values of the symbols, for one read.
pub(crate) trait SymbolSource {
    /// Sets `value` to the value of a symbol. The error describes why the symbol has no value.
    fn load(&self, symbol: &Symbol, value: &mut Value) -> Result<(), String>;
}

/// A value during the evaluation of an expression (`hts_expr_val_t`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Value {
    is_text: bool,
    /// True for a value that counts as true although it is 0, such as a tag that is present.
    is_true: bool,
    text: Option<Vec<u8>>,
    number: f64,
}

impl Value {
    pub(crate) fn set_number(&mut self, number: f64) {
        (self.is_text, self.number) = (false, number);
    }

    pub(crate) fn set_text(&mut self, text: &[u8]) {
        self.is_text = true;
        let content = self.text.get_or_insert_default();
        content.clear();
        content.extend_from_slice(text);
    }

    /// Sets the value of a numeric tag, which is true even if it is 0.
    pub(crate) fn set_tag_number(&mut self, number: f64) {
        self.set_number(number);
        self.is_true = true;
    }

    /// Sets the value of a text tag.
    pub(crate) fn set_tag_text(&mut self, text: &[u8]) {
        self.set_text(text);
        self.is_true = true;
    }

    /// Sets the value of a tag that the read does not have.
    pub(crate) fn set_absent_tag(&mut self) {
        (self.is_text, self.is_true, self.number) = (true, false, 0.0);
        if let Some(text) = &mut self.text {
            text.clear();
        }
    }

    /// Returns whether the value is a result that accepts a read.
    pub(super) fn is_true_result(&self) -> bool {
        let is_set = if self.is_text { self.text.is_some() } else { self.exists() && self.number != 0.0 };
        self.is_true || is_set
    }

    fn exists(&self) -> bool {
        if self.is_text { self.text.is_some() } else { !self.number.is_nan() }
    }

    fn exists_or_is_true(&self) -> bool {
        self.is_true || self.exists()
    }

    fn is_truthy(&self) -> bool {
        self.is_true || (self.is_text && self.text.is_some()) || self.number != 0.0
    }

    fn set_undefined(&mut self) {
        (self.is_text, self.is_true, self.number) = (false, false, f64::NAN);
    }

    fn set_truth(&mut self, truth: bool) {
        (self.is_text, self.is_true, self.number) = (false, truth, f64::from(truth));
    }
}

/// Converts a number as `(int64_t)` does on x86-64: numbers out of range, and NaN, become the smallest integer.
fn to_integer(number: f64) -> i64 {
    // Both limits are powers of two, so they are exact.
    if (i64::MIN as f64..-(i64::MIN as f64)).contains(&number) { number as i64 } else { i64::MIN }
}

/// Returns the part of a text before its first NUL, at which functions for C strings end.
fn c_string(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn arithmetic_error() -> String {
    "it calculates with a text".to_owned()
}

impl Node {
    /// Evaluates the node, and writes the result over `result`.
    pub(super) fn evaluate(&self, read: &impl SymbolSource, result: &mut Value) -> Result<(), String> {
        match self {
            Self::Number(number) => result.set_number(*number),
            Self::Text(text) => result.set_text(text),
            Self::Symbol(symbol) => read.load(symbol, result)?,
            Self::Call(function, arguments) => call(*function, arguments, read, result)?,
            Self::Unary(operator, operand) => {
                operand.evaluate(read, result)?;
                apply_unary(*operator, result)?;
            }
            Self::Chain(first, rest) => {
                first.evaluate(read, result)?;
                evaluate_chain(rest, read, result)?;
            }
            Self::Comparison(comparison, left, right) => {
                left.evaluate(read, result)?;
                let mut value = Value::default();
                right.evaluate(read, &mut value)?;
                compare(*comparison, result, &value);
            }
            Self::Pattern { text, pattern, matches } => {
                text.evaluate(read, result)?;
                if !result.is_text {
                    return Err("it compares a number with a pattern".to_owned());
                }
                match &result.text {
                    Some(text) => {
                        let truth = pattern.is_match(c_string(text)) == *matches;
                        result.set_truth(truth);
                    }
                    // An absent tag neither matches nor does not match.
                    None => (result.is_text, result.is_true) = (false, false),
                }
            }
        }
        Ok(())
    }
}

fn apply_unary(operator: UnaryOperator, value: &mut Value) -> Result<(), String> {
    if operator == UnaryOperator::Not {
        let truth = match value {
            _ if value.is_true => false,
            _ if !value.exists() => true,
            _ if value.is_text => false,
            _ => to_integer(value.number) == 0,
        };
        value.set_truth(truth);
        return Ok(());
    }
    if !value.exists() {
        value.set_undefined();
        return Ok(());
    }
    if value.is_text {
        return Err(arithmetic_error());
    }
    match operator {
        UnaryOperator::Minus => value.number = -value.number,
        UnaryOperator::BitNot => value.number = !to_integer(value.number) as f64,
        UnaryOperator::Plus | UnaryOperator::Not => {}
    }
    value.is_true = value.number != 0.0;
    Ok(())
}

/// Evaluates the operators of one precedence level after the first operand, which is in `result`.
fn evaluate_chain(rest: &[(ChainOperator, Node)], read: &impl SymbolSource, result: &mut Value) -> Result<(), String> {
    let mut value = Value::default();
    let mut is_undefined = false;
    for (operator, operand) in rest {
        if matches!(operator, ChainOperator::And | ChainOperator::Or) {
            value = Value::default();
        }
        operand.evaluate(read, &mut value)?;
        match operator {
            ChainOperator::And | ChainOperator::Or => {
                apply_logical(*operator, result, &value);
                continue;
            }
            _ if !value.exists() || !result.exists() => is_undefined = true,
            _ if value.is_text || result.is_text => return Err(arithmetic_error()),
            _ => {}
        }
        match operator {
            ChainOperator::Multiply | ChainOperator::Divide | ChainOperator::Remainder => {
                if std::mem::take(&mut is_undefined) {
                    result.set_undefined();
                }
                apply_product(*operator, result, value.number);
            }
            ChainOperator::Add | ChainOperator::Subtract => {
                let sign = if *operator == ChainOperator::Add { 1.0 } else { -1.0 };
                result.number += sign * value.number;
                result.is_true = result.number != 0.0;
                if std::mem::take(&mut is_undefined) {
                    result.set_undefined();
                }
            }
            // If an operand of a bitwise operator does not exist, the result of the whole chain does not exist.
            _ => apply_bitwise(*operator, result, value.number),
        }
    }
    if is_undefined {
        result.set_undefined();
    }
    Ok(())
}

fn apply_product(operator: ChainOperator, result: &mut Value, operand: f64) {
    match operator {
        ChainOperator::Multiply => result.number *= operand,
        ChainOperator::Divide => result.number /= operand,
        _ => match to_integer(operand) {
            0 => result.set_undefined(),
            divisor => result.number = to_integer(result.number).wrapping_rem(divisor) as f64,
        },
    }
    result.is_true = result.exists() && result.number != 0.0;
}

fn apply_bitwise(operator: ChainOperator, result: &mut Value, operand: f64) {
    let (left, right) = (to_integer(result.number), to_integer(operand));
    let bits = match operator {
        ChainOperator::BitAnd => left & right,
        ChainOperator::BitXor => left ^ right,
        _ => left | right,
    };
    (result.number, result.is_true) = (bits as f64, bits != 0);
}

fn apply_logical(operator: ChainOperator, result: &mut Value, value: &Value) {
    let (left, right) = (result.exists_or_is_true(), value.exists_or_is_true());
    let is_undefined = match operator {
        ChainOperator::And => !left || !right,
        _ => (!left && (!right || !value.is_truthy())) || (!right && !result.is_truthy()),
    };
    if is_undefined {
        return result.set_truth(false);
    }
    let truth = match operator {
        ChainOperator::And => result.is_truthy() && value.is_truthy(),
        _ => result.is_truthy() || value.is_truthy(),
    };
    result.set_truth(truth);
}

fn compare(comparison: Comparison, result: &mut Value, value: &Value) {
    if !result.exists() || !value.exists() {
        return result.set_undefined();
    }
    let (left, right) = (result.text.as_deref().map(c_string), value.text.as_deref().map(c_string));
    let (number, other) = (result.number, value.number);
    let truth = match comparison {
        // A text that is compared with a number is equal to the last text of the number's operands, if there was one.
        Comparison::Equal if result.is_text => left.is_some() && left == right,
        Comparison::Equal => !value.is_text && number == other,
        Comparison::NotEqual if result.is_text => left != right,
        Comparison::NotEqual => value.is_text || number != other,
        _ => match (result.is_text, value.is_text) {
            (true, true) => comparison.is_true(&left, &right),
            (false, false) => comparison.is_true(&number, &other),
            _ => false,
        },
    };
    result.set_truth(truth);
}

fn call(function: Function, arguments: &[Node], read: &impl SymbolSource, result: &mut Value) -> Result<(), String> {
    let [first, rest @ ..] = arguments else { return Err("a function has no argument".to_owned()) };
    first.evaluate(read, result)?;
    let mut second = Value::default();
    if let Some(argument) = rest.first() {
        argument.evaluate(read, &mut second)?;
    }
    match function {
        Function::Default => {
            if !result.exists_or_is_true() {
                *result = second;
            }
        }
        Function::Exists => {
            let exists = result.exists_or_is_true();
            result.set_truth(exists);
        }
        Function::Length | Function::Minimum | Function::Maximum | Function::Average => {
            if !result.is_text {
                return Err("a function for texts, such as length(), has a number as its argument".to_owned());
            }
            let number = text_statistic(function, result.text.as_deref().unwrap_or_default());
            result.set_number(number);
        }
        Function::Power if !result.exists() || !second.exists() => result.set_undefined(),
        Function::Power if result.is_text || second.is_text => return Err(arithmetic_error()),
        Function::Power | Function::Exponential | Function::Logarithm | Function::SquareRoot => {
            let number = match function {
                Function::Power => result.number.powf(second.number),
                Function::Exponential => result.number.exp(),
                Function::Logarithm => result.number.ln(),
                _ => result.number.sqrt(),
            };
            result.set_number(number);
            if number.is_nan() {
                result.set_undefined();
            }
        }
    }
    Ok(())
}

fn text_statistic(function: Function, text: &[u8]) -> f64 {
    match function {
        Function::Length => text.len() as f64,
        Function::Minimum => text.iter().min().map_or(f64::NAN, |byte| f64::from(*byte)),
        Function::Maximum => text.iter().max().map_or(f64::NAN, |byte| f64::from(*byte)),
        _ => {
            let sum: u64 = text.iter().map(|byte| u64::from(*byte)).sum();
            if text.is_empty() { 0.0 } else { sum as f64 / text.len() as f64 }
        }
    }
}
