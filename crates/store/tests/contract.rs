//! The contract of every database of records: one suite, run on SQLite and on a real PostgreSQL.
//!
//! A server of PostgreSQL is made in a temporary directory if its programs are installed, or
//! `LARDER_TEST_POSTGRES` is the URL of one that may be filled with databases. Without either its
//! half is skipped, except under `CI=true`. `LARDER_TEST_LONG=1` kills writers more often.

#[path = "contract/basics.rs"]
mod basics;
#[path = "contract/database.rs"]
mod database;
#[path = "contract/downloads.rs"]
mod downloads;
#[path = "contract/following.rs"]
mod following;
#[path = "contract/histories.rs"]
mod histories;
#[path = "contract/kill.rs"]
mod kill;
#[path = "contract/outages.rs"]
mod outages;
#[path = "contract/replica.rs"]
mod replica;
#[path = "contract/restoring.rs"]
mod restoring;

/// Makes a test of each function, once for each database.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() {
                $crate::database::run($crate::database::Kind::Sqlite, super::$name);
            })+
        }
        mod postgres {
            $(#[test] fn $name() {
                $crate::database::run($crate::database::Kind::Postgres, super::$name);
            })+
        }
    };
}
use on_both;
