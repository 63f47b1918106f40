//! What an import brings: users, indexes, releases and articles, as the other index has them.

use record::Batch;

use crate::{Basis, Decided, Name, Operation, Refusal, Rule};

/// Writes the records that an import has planned on the state of the decision, if any. Only commands import.
#[derive(Clone, Debug)]
pub struct ImportRecords(pub Option<Batch>);

impl Operation for ImportRecords {
    const NAME: Name = Name::ImportRecords;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        if !basis.sender().is_on_the_machine() {
            return Err(Rule::OnlyTheServer.into());
        }
        Ok(Decided::new(self.0.clone(), ()))
    }
}
