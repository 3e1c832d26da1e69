//! How a command ends, as an exit code and one line.

use std::process::ExitCode;
use std::{fmt, io};

use configmonitor_operator::kube::error::{Cause, Error};

/// Why a command does not succeed. A wrong command line is 2.
#[derive(Debug)]
pub enum Failure {
    /// 1.
    Failed(String),
    /// 1: the API server cannot be reached, or answers later.
    Away(String),
    /// 3: a person must do something.
    Stalled(String),
    /// 4.
    TimedOut(String),
    /// 5: a window, an interval or `spec.suspend` holds the restart.
    Held(String),
    /// 0: whoever reads the output has seen enough.
    Unread,
    /// 128 and the number of the signal.
    Signal(u8),
}

impl Failure {
    pub(crate) fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Unread => 0,
            Self::Failed(_) | Self::Away(_) => 1,
            Self::Stalled(_) => 3,
            Self::TimedOut(_) => 4,
            Self::Held(_) => 5,
            Self::Signal(number) => 128 + number,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::Away(why) | Self::Stalled(why) | Self::TimedOut(why) | Self::Held(why) => {
                f.write_str(why)
            }
            Self::Unread => Ok(()),
            Self::Signal(_) => f.write_str("interrupted"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.cause {
            Cause::NoSuchResource => Self::Failed(format!(
                "{error}: install the CustomResourceDefinition of ConfigMonitors, or an API server of this version"
            )),
            Cause::Unreachable(_) | Cause::Busy(_) | Cause::Refused(_) => Self::Away(error.to_string()),
            _ => Self::failed(error),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::failed(error)
    }
}
