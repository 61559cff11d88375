//! What becomes of a request: a pure function of policy, method, path and body.

mod body;
mod input;
mod tool;
mod toolset;

use hyper::Method;
use stockade_core::event::network_code;

use crate::policy::ModelPolicy;
use body::Asked;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// A request that the profile lists as harmless: answered here with this status and no note.
    Side {
        /// The status.
        status: u16,
    },
    /// No call of the model: answered here, never forwarded.
    NotAModelCall,
    /// A call of the model whose body cannot be read.
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// A call of the model that the plan does not hold. Ends the run.
    Refused {
        /// One of [`network_code`].
        code: &'static str,
        /// What was asked and what was expected.
        detail: String,
    },
    /// A call of the model as planned.
    ModelCall(ModelCall),
}

/// A call of the model as planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// The index of the class in the policy.
    pub class: usize,
    /// The name of the class.
    pub class_name: String,
    /// The model asked for.
    pub model: String,
    /// The tools offered, in the order of the request.
    pub tools: Vec<String>,
    /// The reasoning effort.
    pub effort: Option<String>,
}

/// Where a request goes, before its body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Side { status: u16 },
    NotAModelCall,
    ModelCall,
}

/// Decides about a whole request. `path` is without its query.
pub fn decide(policy: &ModelPolicy, method: &str, path: &str, body: &[u8]) -> Decision {
    match route(policy, method, path) {
        Route::Side { status } => Decision::Side { status },
        Route::NotAModelCall => Decision::NotAModelCall,
        Route::ModelCall => decide_call(policy, body),
    }
}

/// Compares exactly, without decoding or normalising: what is not literally a model path is none.
pub(crate) fn route(policy: &ModelPolicy, method: &str, path: &str) -> Route {
    if method == Method::POST.as_str() && policy.model_paths.iter().any(|p| p == path) {
        return Route::ModelCall;
    }
    match policy.side_requests.iter().find(|s| s.method == method && s.path == path) {
        Some(side) => Route::Side { status: side.status },
        None => Route::NotAModelCall,
    }
}

/// Decides about the body of a call of the model.
pub(crate) fn decide_call(policy: &ModelPolicy, body: &[u8]) -> Decision {
    let asked: Asked = match serde_json::from_slice(body) {
        Ok(asked) => asked,
        Err(error) => return Decision::Malformed { reason: error.to_string() },
    };
    let Some(model) = asked.model else {
        return Decision::Malformed { reason: "the request names no model".to_owned() };
    };
    if !policy.models.contains(&model) {
        return Decision::Refused {
            code: network_code::MODEL_MISMATCH,
            detail: format!("asked for {}, seen {model}", policy.models.join(", ")),
        };
    }
    match toolset::classify(&policy.classes, &asked.tools) {
        Err(detail) => Decision::Refused { code: network_code::TOOLSET_MISMATCH, detail },
        Ok((class, name)) => Decision::ModelCall(ModelCall {
            class,
            class_name: name.to_owned(),
            model,
            tools: asked.tools,
            effort: asked.effort,
        }),
    }
}

#[cfg(test)]
mod tests;
