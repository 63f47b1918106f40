//! `example.…`: the smallest action, and the most expensive one.

use bytes::Bytes;
use serde_json::json;

use super::arguments::arguments;
use super::{ActionResult, Arguments, Computation, Definition, Failure, Handler};

pub(crate) const ACTIONS: &[Definition] = &[
    Definition {
        name: "example.hello_world",
        summary: "Says hello.",
        arguments: HelloWorld::DESCRIBED,
        example: "{}",
        writes: false,
        handler: Handler::Read(|_, arguments| hello_world(arguments)),
    },
    Definition {
        name: "example.fibonacci",
        summary: "Computes a Fibonacci number by plain recursion: an example of work that keeps a core busy.",
        arguments: Fibonacci::DESCRIBED,
        example: r#"{"n":34}"#,
        writes: false,
        handler: Handler::Compute(compute_fibonacci),
    },
];

/// A larger number would keep a core busy for seconds.
const N_MAX: u32 = 45;

arguments! {
    /// No arguments.
    struct HelloWorld {}
}

arguments! {
    /// Names a Fibonacci number.
    struct Fibonacci {
        /// The index of the Fibonacci number, from 0 to 45; it takes about three times as many calls as the result.
        n: u32,
    }
}

fn hello_world(arguments: Arguments<'_>) -> ActionResult {
    let HelloWorld {} = arguments.read()?;
    Ok(Bytes::from_static(br#""Hello world!""#))
}

fn compute_fibonacci(arguments: Arguments<'_>) -> Result<Computation, Failure> {
    let Fibonacci { n } = arguments.read()?;
    if n > N_MAX {
        return Err(Failure::refused(format!("`n` is {n}, expected at most {N_MAX}")));
    }
    Ok(Box::new(move || Ok(json!({"n": n, "value": fibonacci(n)}).to_string().into())))
}

/// The recursion `f(n) = f(n-1) + f(n-2)`, with every call made. Five levels are unrolled, as C compilers do on their
/// own; the barrier in each round keeps Rust's compiler from merging calls with the same argument.
#[inline(always)]
fn fibonacci(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { sum(n) }
}

#[inline(never)]
fn sum(n: u32) -> u64 {
    let n = std::hint::black_box(n);
    second(n - 1) + second(n - 2)
}

#[inline(always)]
fn second(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { third(n - 1) + third(n - 2) }
}

#[inline(always)]
fn third(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { fourth(n - 1) + fourth(n - 2) }
}

#[inline(always)]
fn fourth(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { fifth(n - 1) + fifth(n - 2) }
}

#[inline(always)]
fn fifth(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let (mut this, mut next) = (0, 1);
        for n in 0..=24 {
            assert_eq!(fibonacci(n), this, "{n}");
            (this, next) = (next, this + next);
        }
        assert_eq!(fibonacci(34), 5_702_887);
    }
}
