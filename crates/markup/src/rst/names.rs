//! What a text defines for other places in it: targets of links, places, footnotes and substitutions.
//!
//! The first pass over the blocks calls the functions that begin with `define`; [`Names::complete`] ends it. The second pass asks.

use std::collections::{HashMap, HashSet};

use super::lines::{is_simple_name, key, reference, unescaped};
use crate::{HREF_BYTES_MAX, tidy};

/// Characters of an `id` before its number.
const ID_CHARS_MAX: usize = 60;

/// Targets that stand for each other in a row.
const INDIRECT_MAX: usize = 8;

/// Signs of footnotes `[*]_`, as docutils counts.
const SIGNS: [char; 10] = ['*', '†', '‡', '§', '¶', '#', '♠', '♥', '♦', '♣'];

/// The target of a link.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Url(String),
    /// An `id` in this text.
    Place(String),
    /// The target with this key.
    Name(String),
}

pub(super) enum Substitution {
    Text(String),
    Picture { source: String, alt: String, target: Option<String> },
}

/// A footnote or a citation.
pub(super) struct Note {
    label: NoteLabel,
    /// The label as it is shown.
    pub(super) shown: String,
    pub(super) id: String,
}

/// A label as it is written between the brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NoteLabel {
    /// `1`, or the name of a citation: its key.
    Named(String),
    /// `#name`: its key.
    Counted(String),
    /// `#`
    Next,
    /// `*`
    Sign,
}

impl NoteLabel {
    pub(super) fn parse(text: &str) -> Option<NoteLabel> {
        let name = text.strip_prefix('#');
        match text {
            "#" => Some(NoteLabel::Next),
            "*" => Some(NoteLabel::Sign),
            _ if !is_simple_name(name.unwrap_or(text)) => None,
            _ => Some(match name {
                Some(name) => NoteLabel::Counted(key(name)),
                None => NoteLabel::Named(key(text)),
            }),
        }
    }
}

#[derive(Default)]
pub(super) struct Names {
    targets: HashMap<String, Target>,
    /// The `id`s of sections by their titles: a target of the same name comes first.
    sections: HashMap<String, String>,
    /// The `id`s of all titles, in their order.
    pub(super) titles: Vec<String>,
    /// Targets of links without a name, in their order; `None` for one that is too long.
    pub(super) unnamed: Vec<Option<Target>>,
    substitutions: HashMap<String, Substitution>,
    notes: Vec<Note>,
    /// The places of the notes with a label, in their order.
    noted: HashMap<NoteLabel, Vec<usize>>,
    /// The `id`s that are taken, with the number of the next one like it.
    ids: HashMap<String, u32>,
    /// Whether the first pass is over: nothing is defined any more.
    is_complete: bool,
}

impl Names {
    /// An `id` like this text, which nothing else in the text has.
    fn free_id(&mut self, wanted: &str) -> String {
        let base = tidy::slug(wanted).unwrap_or_else(|| "section".to_owned());
        let base: String = base.chars().take(ID_CHARS_MAX).collect();
        let mut id = base.clone();
        while self.ids.contains_key(&id) {
            let number = self.ids.entry(base.clone()).or_insert(0);
            *number += 1;
            id = format!("{base}-{number}");
        }
        self.ids.insert(id.clone(), 0);
        id
    }

    /// The address without its spaces; `None` if it is too long.
    pub(super) fn url(text: &str) -> Option<String> {
        let url: String = unescaped(text).split_whitespace().collect();
        let is_mail = url.contains('@')
            && !url.contains([':', '/'])
            && url.split('@').all(|part| !part.is_empty())
            && url.split('@').count() == 2;
        let url = if is_mail { format!("mailto:{url}") } else { url };
        (url.len() <= HREF_BYTES_MAX).then_some(url)
    }

    /// The target that is written: another one's name, or an address.
    pub(super) fn target(text: &str) -> Option<Target> {
        match reference(text) {
            Some(name) => Some(Target::Name(key(name))),
            None => Names::url(text).map(Target::Url),
        }
    }

    /// The first of two targets with the same name counts.
    pub(super) fn define(&mut self, name: &str, target: Target) {
        if !self.is_complete {
            self.targets.entry(key(name)).or_insert(target);
        }
    }

    /// The target of these names, which had been places.
    pub(super) fn define_instead(&mut self, names: &[String], target: &Target) {
        for name in names.iter().filter(|_| !self.is_complete) {
            self.targets.insert(key(name), target.clone());
        }
    }

    pub(super) fn define_place(&mut self, name: &str) {
        if !self.is_complete && !self.targets.contains_key(&key(name)) {
            let id = self.free_id(name);
            self.define(name, Target::Place(id));
        }
    }

    pub(super) fn define_unnamed(&mut self, target: Option<Target>) {
        if !self.is_complete {
            self.unnamed.push(target);
        }
    }

    pub(super) fn define_unnamed_place(&mut self) {
        if !self.is_complete {
            let id = self.free_id("place");
            self.unnamed.push(Some(Target::Place(id)));
        }
    }

    pub(super) fn define_section(&mut self, title: &str) {
        if !self.is_complete {
            let id = self.free_id(title);
            self.sections.entry(key(title)).or_insert_with(|| id.clone());
            self.titles.push(id);
        }
    }

    pub(super) fn define_substitution(&mut self, name: &str, substitution: Substitution) {
        if !self.is_complete {
            self.substitutions.insert(key(name), substitution);
        }
    }

    pub(super) fn define_note(&mut self, label: NoteLabel, written: &str) {
        if !self.is_complete {
            let id = self.free_id(&format!("fn-{written}"));
            self.noted.entry(label.clone()).or_default().push(self.notes.len());
            self.notes.push(Note { label, shown: written.to_owned(), id });
        }
    }

    /// Ends the first pass.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
        let given: HashSet<String> = self
            .notes
            .iter()
            .filter(|note| matches!(note.label, NoteLabel::Named(_)))
            .map(|note| note.shown.clone())
            .collect();
        let mut numbers =
            (1_u32..).map(|number| number.to_string()).filter(|it| !given.contains(it));
        let mut signs = 0;
        for note in &mut self.notes {
            match note.label {
                NoteLabel::Named(_) => {}
                NoteLabel::Next | NoteLabel::Counted(_) => {
                    note.shown = numbers.next().unwrap_or_default()
                }
                NoteLabel::Sign => {
                    let sign = SIGNS[signs % SIGNS.len()];
                    // A text has at most some thousands of them.
                    note.shown = sign.to_string().repeat((signs / SIGNS.len() + 1).min(5));
                    signs += 1;
                }
            }
        }
    }

    /// The footnote that is defined at this place among all.
    pub(super) fn note_at(&self, at: usize) -> Option<&Note> {
        self.notes.get(at)
    }

    /// The footnote that a label in the text leads to; for `#` and `*` the one at this place among its kind.
    pub(super) fn note(&self, label: &NoteLabel, at: usize) -> Option<&Note> {
        let at = if matches!(label, NoteLabel::Next | NoteLabel::Sign) { at } else { 0 };
        self.notes.get(*self.noted.get(label)?.get(at)?)
    }

    pub(super) fn substitution(&self, name: &str) -> Option<&Substitution> {
        self.substitutions.get(&key(name))
    }

    /// Where the target with this name leads.
    pub(super) fn href(&self, name: &str) -> Option<String> {
        self.href_of(&Target::Name(key(name)))
    }

    pub(super) fn href_of(&self, target: &Target) -> Option<String> {
        let mut target = target;
        for _ in 0..INDIRECT_MAX {
            match target {
                Target::Url(url) => return Some(url.clone()),
                Target::Place(id) => return Some(format!("#{id}")),
                Target::Name(key) => match self.targets.get(key) {
                    Some(next) => target = next,
                    None => return self.sections.get(key).map(|id| format!("#{id}")),
                },
            }
        }
        None
    }

    /// The `id` of the place with this name.
    pub(super) fn place(&self, name: &str) -> Option<&str> {
        match self.targets.get(&key(name)) {
            Some(Target::Place(id)) => Some(id),
            _ => None,
        }
    }
}
