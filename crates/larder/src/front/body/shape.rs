//! [`Shape`]: how many values a body has as JSON and how deep they are nested, counted without building any.

/// The numbers of JSON's parts in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    objects: usize,
    arrays: usize,
    /// Texts, numbers and constants, and the keys of objects; at most one too many for each array and object.
    scalars: usize,
    /// How deep arrays and objects are nested.
    pub(crate) depth: usize,
}

/// Bytes that an object, an array and any other value take at most: the first node of a map, the first allocation of a list, a
/// place in either with the least allocation of a text. A place may double for growth.
const OBJECT_BYTES: usize = 704;
const ARRAY_BYTES: usize = 160;
const SCALAR_BYTES: usize = 96;

impl Shape {
    /// Counts the parts of these bytes, whether they are JSON or not: never fewer than in JSON that begins like them.
    pub(crate) fn of(bytes: &[u8]) -> Shape {
        let mut shape = Shape { scalars: 1, ..Shape::default() };
        let mut depth = 0_usize;
        let (mut in_text, mut is_escaped) = (false, false);
        for byte in bytes {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_text => is_escaped = true,
                b'"' => in_text = !in_text,
                _ if in_text => {}
                b'{' | b'[' => {
                    *if *byte == b'{' { &mut shape.objects } else { &mut shape.arrays } += 1;
                    depth += 1;
                    shape.depth = shape.depth.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b',' | b':' => shape.scalars += 1,
                _ => {}
            }
        }
        shape
    }

    /// Values of all kinds.
    pub(crate) fn values(&self) -> usize {
        self.objects + self.arrays + self.scalars
    }

    /// Bytes that a tree of these values takes at most in memory, if the body has `body_bytes`.
    pub(crate) fn memory_bytes(&self, body_bytes: usize) -> usize {
        self.objects * OBJECT_BYTES
            + self.arrays * ARRAY_BYTES
            + self.scalars * SCALAR_BYTES
            + body_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, [objects, arrays, scalars, depth]: [usize; 4]) {
        let expected = Shape { objects, arrays, scalars, depth };
        assert_eq!(Shape::of(json.as_bytes()), expected, "{json}");
    }

    #[test]
    fn values_are_counted() {
        check("", [0, 0, 1, 0]);
        check("7", [0, 0, 1, 0]);
        check(r#"{"a":[1,2,{"b":null}]}"#, [2, 1, 5, 3]);
        check(r#"["[{,:\"[{,:",""]"#, [0, 1, 2, 1]);
        check("[[[[", [0, 4, 1, 4]);
        check("]]]][", [0, 1, 1, 1]);
        assert_eq!(Shape::of(b"[[1],{}]").values(), 5);
    }
}
