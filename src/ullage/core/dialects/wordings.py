"""The table of wordings that providers use for "too big" and for other errors.

Each row is one form of sentence, not one provider: what is too big, how it is compared, with what
limit. It keeps a sample of the sentence it was made for. Order matters, because the first matching
row wins: vetoes, totals before inputs, sentences with numbers before those without, and last the
rows that are only `likely`. This module knows no bodies and no status codes;
`core.dialects.overflow` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ullage.core.errors import Kind


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording; groups named `limit`, `input`, `more` and `output` are numbers of tokens.

    `more` is a second part of the input; both are added.
    """

    kind: Kind
    pattern: re.Pattern[str]
    sample: str
    certainty: Literal["certain", "likely"] = "certain"
    about: Literal["thinking", "binding", "alternation"] | None = None


SERVER_STATE: Final[Kind] = "server_state"
"""The kind of a lost `previous_response_id`: a smaller request would not help."""

CODES: Final[Mapping[str, Kind]] = {
    "exceed_context_size_error": "input",  # llama.cpp
    "context_length_exceeded": "input",  # OpenAI and many that follow it
    "tokens_limit_reached": "input",  # GitHub Models
    "model_context_window_exceeded": "input",
    "insufficient_quota": "quota",  # OpenAI
    "billing_hard_limit_reached": "quota",
    "billing_error": "quota",  # Anthropic
    "exceeded_current_quota_error": "quota",  # Moonshot
    "rate_limit_exceeded": "rate_limit",  # OpenAI, Groq (there with 413 as well)
    "rate_limit_error": "rate_limit",  # Anthropic
    "rate_limit_reached_error": "rate_limit",  # Moonshot
    "throttlingexception": "rate_limit",  # Bedrock
    "request_too_large": "bytes",  # Anthropic: 32 MB
    "previous_response_not_found": SERVER_STATE,
    "invalid_function_parameters": "other",  # a schema may contain any words
    "content_filter": "other",  # Azure OpenAI; filters quote users' text
    "content_policy_violation": "other",  # OpenAI
    "responsibleaipolicyviolation": "other",  # Azure OpenAI, in `innererror`
    "invalid_prompt": "other",  # OpenAI: a prompt against the usage policy
    "permission_error": "other",  # Anthropic
    "authentication_error": "other",  # Anthropic
    "invalid_api_key": "other",  # OpenAI
    "unsupported_parameter": "other",
}
"""Values of `code`, `type` and `__type`, in lower case."""

_NUMBER: Final = r"(?<![\d?])(?:\d{1,12}|\?)(?!\d)k?"
"""A number as `core.dialects.overflow` prepares it: no separators, `?` for too many digits."""

_PARTS: Final[Mapping[str, str]] = {
    **{f"{{{name}}}": f"(?P<{name}>{_NUMBER})" for name in ("input", "limit", "more", "output")},
    "~": r"[^\d.;\n]{0,60}?",
    "SEP": r"[\s.,;:()\[\]-]{1,4}",
    "PROMPT": r"(?:inputs?|prompts?|requests?|requested|messages?|conversation|query)",
    # a number is one of tokens only if the sentence mentions tokens
    "SIZED": r"\b(?:prompts?|tokens?|context"
    r"|(?:inputs?|request(?:s|ed)?|messages|conversation|query|max(?:imum)?\b|length|limit|window|size|supports)(?=[^\n]{0,200}(?:token|context|prompt)))",
    "OVER": r"(?:exceed\w*|(?:long|larg|great|more|bigg)\w* than|over|above|surpass\w*|overflow\w*"
    r"|too (?:long|large|big)|>)",
    "WINDOW": r"(?:context[ _]?(?:window|length|size|limit))",
    "CEILING": r"(?:limit|max\w*|up to|at most|only|context|window)",
    "OUTPUT": r"max(?:imum)?[ _](?:(?:completion|output|new|generated)[ _])?tokens",
}
"""Abbreviations in the patterns below. Every repeat is bounded, so that matching stays linear."""


def _row(
    kind: Kind,
    pattern: str,
    sample: str,
    *,
    likely: bool = False,
    about: Literal["thinking", "binding", "alternation"] | None = None,
) -> Wording:
    for name, part in _PARTS.items():
        pattern = pattern.replace(name, part)
    certainty: Literal["certain", "likely"] = "likely" if likely else "certain"
    return Wording(kind, re.compile(pattern, re.IGNORECASE), sample, certainty, about)


_BROKEN: Final = (
    _row(
        "other",
        r"peer closed connection|incomplete (?:message|chunked)|connection (?:was )?reset",
        "peer closed connection without sending complete message body (received 7 bytes, "
        "expected 100)",
    ),
)

_RATES: Final = (
    _row(
        "rate_limit",
        r"tokens?[ -]*per[ -]*(?:min|day|hour|sec|month)|per[ -]?(?:minute|second)\b|\b[tr]p[md]\b",
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389.",
    ),
    _row(
        "quota",
        r"(?:current|free|daily|monthly|usage|your) (?:\w+ )?quota|quota (?:exceeded|has been)"
        r"|insufficient[ _](?:quota|balance|credits?|funds)|credit balance"
        r"|(?:more|all your|out of|purchase|enough) credits|\bbilling\b"
        r"|(?:spending|usage|credit) limit|payment required|余额|欠费|配额|额度",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    _row(
        "rate_limit",
        r"rate.?limit|too many (?:concurrent )?requests|throttl|concurrency|too many tokens"
        r"(?: processed|[,.] (?:please )?(?:wait|retry|slow))"
        r"|\b(?:daily|hourly|weekly|monthly) (?:token|request|usage)"
        r"|过于频繁|频率|限流|每分钟|并发|请求次数",
        "Too many tokens, please wait before trying again.",
    ),
    _row(
        "other",
        r"(?:extra usage|long context).{0,40}(?:is required|not (?:yet )?available)",
        "Extra usage is required for requests that exceed the context window",
    ),
)

_SIZES: Final = (
    _row(
        "media",
        r"\b(?:images?|pictures?|photos?|pdfs?|videos?|audio|pixels|documents?|attachments?|files?)\b"
        r"[^\n]{0,80}(?:exceed|too (?:large|big|long|many)|maximum|larger than|more than|at most)"
        r"(?![^\n]{0,80}(?:token|context (?:window|length|size)))"
        r"|(?:too many|maximum of \d+) (?:images|pdf pages|pages|attachments|documents|files)"
        r"|(?:图片|图像|音频|视频|文件)[^。\n]{0,20}(?:超过|超出|过大|限制)",
        "messages.0.content.0.image.source.base64.data: At least one of the image dimensions "
        "exceed max allowed size: 8000 pixels",
    ),
    _row(
        "media",
        r"\b(?:images?|vision|audio|videos?|pdfs?|multi-?modal)\b[^\n.]{0,40}"
        r"(?:not supported|unsupported)"
        r"|(?:not|n.t) (?:support|accept)s? (?:images?|vision|audio|videos?|multi-?modal)"
        r"|(?:no|without) (?:endpoints? found that support )?"
        r"(?:image|vision|audio) (?:input|support)",
        "image input is not supported - hint: if this is unexpected, you may need to provide the "
        "mmproj",
    ),
    _row(
        "bytes",
        r"\d ?(?:bytes|[kmg]i?b)\b|request (?:body )?exceeds the maximum size"
        r"|(?:entity|payload|body)(?: is| size)? (?:too (?:large|big)|limit|exceed)"
        r"(?![^\n]{0,60}token)",
        "Request payload size exceeds the limit: 20971520 bytes.",
    ),
    _row(
        "bytes",
        r"invalid '(?:input|messages|contents?)[^'\n]{0,40}': string too long",
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length "
        "1048576, but got a string with length 1540820 instead.",
    ),
)

_CAPS: Final = (
    _row(
        "other",
        r"OUTPUT[^\n]{0,60}(?:must be (?:at least|greater|>|(?:a )?positive)|below|minimum|>=)",
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got "
        "1 instead.",
    ),
    _row(
        "output_cap",
        r"OUTPUT.{0,40}too large.{0,80}at most {limit}",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
    ),
    _row(
        "output_cap",
        r"OUTPUT\W{1,3}\d+ > {limit}[^.\n]{0,80}output tokens",
        "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens",
    ),
    _row(
        "output_cap",
        r"(?<!and )(?<!and [`'\"])(?<!\d, )(?<!\+ )(?<!\+ [`'\"])(?<!plus )OUTPUT[`'\"]?"
        r"(?:[ =:(]{1,3}\d+\)?)?[^\d.\n]{0,80}?"
        r"(?:must|should|cannot|can't|may not|exceeds?|than|above|over|range|expected|allowed)"
        r"(?:(?!context)[^\d.\n]){0,80}?(?:\[\d+, ?)?{limit}",
        "Range of max_tokens should be [1, 65536]",
    ),
    _row(
        "output_cap",
        r"(?<!and )(?<!\+ )(?<!plus )\b(?:output|completion) tokens?\b[^\d.\n]{0,20}"
        r"(?:\d{1,12}\)?)?[^\d.\n]{0,20}(?:exceed\w*|more than|greater than|above|over)"
        r"(?:(?!context)[^\d.\n]){0,60}?{limit}",
        "Requested 9000 output tokens exceeds the limit of 8192",
    ),
)

_OTHERS: Final = (
    _row(
        "other",
        r"physical batch size",
        "input (3000 tokens) is too large, the limit is 512 tokens: increase the physical batch "
        "size",
    ),
    _row(
        "other",
        r"\blimit(?: of|:| is|=)? ?0\b",
        "prompt token count of 1083 exceeds the limit of 0",
    ),
    _row(
        "other",
        r"invalid (?:value|schema|type)\b|invalid '(?:tool|function|metadata)|is not a valid"
        r"|(?:string|array) too long|(?:name|description|title|identifier|id)\b.{0,40}too long",
        "Invalid value: 'prompt is too long' is not a valid tool name",
    ),
    _row(
        "other",
        r"(?:number of|too many) (?:messages|tools|functions|items|choices|turns|stop)\b",
        "The number of messages (120) exceeds the maximum of 100, whatever their tokens",
    ),
    _row(
        "other",
        r"\bmodel\b[^\n]{0,80}(?:not found|does not exist|not available|unavailable)",
        "The model 'exceeds-context-length-128k' does not exist",
    ),
    _row(
        SERVER_STATE,
        r"previous[ _]response[^\n]{0,80}(?:not found|expired|exceed)"
        r"|(?:conversation|response)[^\n]{0,80}\bnot found",
        "Previous response with id 'context length exceeded' not found.",
    ),
)

_HISTORY: Final = (
    _row(
        "malformed_history",
        r"roles? must alternate|must alternate between (?:the )?user and assistant"
        r"|unexpected role '?user'? after role '?(?:user|tool)"
        r"|does not support successive (?:user|assistant)",
        "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...",
        about="alternation",
    ),
    _row(
        "malformed_history",
        r"tool_calls?.{0,40}must be followed by tool messages"
        r"|role '?tool'? must be a response to a prece?eding message"
        r"|not the same number of function calls and responses",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'.",
    ),
    _row(
        "malformed_history",
        r"tool[_ ]?(?:use|result)\W{1,3}(?:ids?|blocks?)?.{0,40}"
        r"(?:without|expected|corresponding|cannot)"
        r"|(?:unexpected|expected|missing)\W{1,3}(?:corresponding )?tool_?(?:use|result|call)",
        "messages.5: `tool_use` ids were found without `tool_result` blocks immediately after: x",
    ),
    _row(
        "malformed_history",
        r"no tool (?:output|call) found for function call",
        "No tool output found for function call call_abc.",
    ),
    _row(
        "malformed_history",
        r"function (?:call turn comes|response parts)"
        r"|unexpected role\b|expected last role",
        "Please ensure that the number of function response parts is equal to the number of "
        "function call parts of the function call turn.",
    ),
    _row(
        "malformed_history",
        r"block is bound to a different conversation|prefix_mismatch_behavior",
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
        "different conversation. Remove the block, or set "
        '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
        about="binding",
    ),
    _row(
        "malformed_history",
        r"thinking\W{1,3}(?:blocks?|or)?.{0,80}(?:cannot be modified|must start|signature)"
        r"|(?:invalid|missing).{0,20}signature.{0,20}thinking|without its required following item",
        "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
        "modified.",
        about="thinking",
    ),
)

_TOTALS: Final = (
    _row(
        "total",
        r"WINDOW is {limit} tokens.{1,20}you requested {output} output tokens and your prompt "
        r"contains at least",
        # vLLM stops counting at the first token too many: its figure is limit - output + 1
        "This model's maximum context length is 4096 tokens. However, you requested 1 output "
        "tokens and your prompt contains at least 4096 input tokens, for a total of at least 4097",
    ),
    _row(
        "total",
        r"WINDOW is {limit} tokens.{1,20}you requested {output} output tokens and your prompt "
        r"contains {input}",
        "This model's maximum context length is 32768 tokens. However, you requested 512 output "
        "tokens and your prompt contains 32636 input tokens, for a total of 33148 tokens",
    ),
    _row(
        "total",
        r"WINDOW is {limit} tokens.{1,40}\(\d+ in the messages, \d+ in the "
        r"(?:functions|tools),? and {output} in the completion",
        # two numbers, and neither is called the input
        "This model's maximum context length is 8192 tokens. However, you requested 8213 tokens "
        "(6683 in the messages, 730 in the functions, and 800 in the completion).",
    ),
    _row(
        "total",
        r"WINDOW is {limit} tokens.{1,60}\({input} (?:in|of|from)~"
        r"(?:[,;] {more} of [a-z]{1,20} input)?[,;] (?:and )?{output} (?:in|for|of) the "
        r"(?:completion|output)",
        "This model's maximum context length is 8192 tokens. However, you requested 8635 tokens "
        "(619 of text input, 16 of tool input, 8000 in the output). Please reduce the length",
    ),
    _row(
        "total",
        r"\({input} (?:tokens? )?(?:in |of |for )?(?:the |your )?(?:prompt|input|messages)\W{1,5}"
        r"(?:and )?{output}~\)~{limit}",
        "Requested 9000 tokens (7000 prompt + 2000 completion) but the context window is 8192",
    ),
    _row(
        "total",
        r"{input} \+ {output} (?:= \d+ )?> {limit}",
        "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648, decrease",
    ),
    _row(
        "total",
        r"OUTPUT.{0,40}too large(?:: {output})?.{0,60}WINDOW is {limit} tokens and your request "
        r"has {input}",
        "'max_tokens' or 'max_completion_tokens' is too large: 8000. This model's maximum context "
        "length is 4096 tokens and your request has 2778 input tokens (8000 > 4096 - 2778).",
    ),
    _row(
        "total",
        r"WINDOW of {limit} tokens\W{1,3}you requested a total of \d+ tokens\W{1,3}"
        r"{input}~{output}",
        "exceeds the model's maximum context length of 131072 tokens. You requested a total of "
        "140000 tokens: 120000 tokens from the input messages and 20000 tokens for the completion.",
    ),
    _row(
        "total",
        r"\+ `max_new_tokens` must be <= {limit}\W{1,3}given: {input} `inputs` tokens and {output}",
        "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 6204 `inputs` tokens and 2047 "
        "`max_new_tokens`",
    ),
    _row(
        "total",
        r"{input} input tokens and requested {output} output tokens.{0,60}(?:only|is) {limit}",
        "You passed 7800 input tokens and requested 600 output tokens. However, the model's "
        "context length is only 8192 tokens, resulting in a maximum input length of 7592 tokens.",
    ),
    _row(
        "total",
        r"(?:PROMPT|tokens)[^\d.\n]{0,20}(?:\(?{input}\)?[^\d.\n]{0,20})?(?:plus|and|\+)\W{0,3}"
        r"(?:the )?(?:OUTPUT|completion|output)[^\d.\n]{0,20}(?:\(?{output}\)?)?~"
        r"(?:OVER|must be|cannot)~{limit}",
        "The sum of prompt tokens (7000) and max_tokens (2000) exceeds the context window of 8192",
    ),
    _row(
        "total",
        r"(?:PROMPT|tokens)[^\d.\n]{0,20}(?:plus|and|\+)\W{0,3}(?:the )?"
        r"(?:OUTPUT|completion|output)~OVER~(?:WINDOW|limit)|OUTPUT[`'\"]? ~OVER~WINDOW",
        "prompt and max_tokens exceed the context window",
    ),
    _row(
        "total",
        r"total (?:number of )?tokens~(?:cannot|must|exceed)~{limit}",
        "total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354",
    ),
    _row(
        "total",
        r"OUTPUT[`'\"]?[ =:(]{0,3}{output}\)?~OVER~WINDOW~{limit}",
        "max_tokens (9000) exceeds the model's context length of 8192",
    ),
)

_MEASURED: Final = (
    _row(
        "input",
        r"WINDOW is {limit} tokens.{1,20}your prompt contains \d+ characters",
        "This model's maximum context length is 32768 tokens. However, your prompt contains "
        "981000 characters (more than 524288 characters)",
    ),
    _row(
        "input",
        r"WINDOW is {limit} tokens.{1,20}you requested \d{1,12} tokens(?! ?\()",
        # the share of the output is not named
        "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens.",
    ),
    _row(
        "input",
        r"WINDOW~(?:exceed|overflow)~{input} ?(?:tokens ?)?[/>] ?{limit}",
        "Context window exceeded: 131500/131072 tokens",
    ),
    _row(
        "input",
        r"(?:WINDOW|limit)~{limit}~exceeded by~{input}",
        "the context limit (8192) was exceeded by your input (9000)",
    ),
    _row(
        "input",
        r"(?:WINDOW|limit)~{limit} tokens\W{1,3}{input} (?:requested|given|used|provided)",
        "This request would exceed the context limit of 200000 tokens (210000 requested)",
    ),
    _row(
        "input",
        r"(?:SIZED|sequence length)~{input}(?: tokens)?(?: and 0 draft tokens)?~OVER~{limit}",
        "prompt is too long: 213462 tokens > 200000 maximum",
    ),
    _row(
        "input",
        r"SIZED~{input}~(?:SEP(?:however,? |but ))?~CEILING~{limit}",
        "Prompt has 140000 tokens, but the configured context size is 131072 tokens",
    ),
    _row(
        "input",
        r"SIZED~{limit}(?: tokens)?SEP"
        r"(?:however|but|while|and|your|request|got|given|received|actual)~{input}",
        "This model's maximum context length is 128000 tokens. However, your messages resulted "
        "in 173172 tokens.",
    ),
    _row(
        "input",
        r"current length is {input} while limit is {limit}",
        "Current length is 42328 while limit is 40000",
    ),
    _row(
        "input",
        r"(?<!requested ){input} tokens~SEP(?:however|but)~WINDOW~{limit}",
        "Trying to keep the first 111490 tokens when context the overflows. However, the model is "
        "loaded with context length of only 32768 tokens, which is not enough.",
    ),
    _row(
        "input",
        r"truncate to {limit}\W{1,3}required {input}",
        "Cannot truncate to 89998, required 355220",
    ),
    _row(
        "input",
        r"(?:输入|上下文|提示词?|消息|对话|请求)[^\d。]{0,20}{input}[^\d。]{0,20}"
        r"(?:超过|超出|大于)[^\d。]{0,20}{limit}",
        "输入token数 35000 超过模型最大限制 32768",
    ),
    _row(
        "input",
        r"(?:过长|超过|超出)[^\d。]{0,20}{input}[^\d。]{0,20}(?:最大|最多|上限|限制)[^\d。]{0,10}{limit}",
        "提示词过长, 当前 9000 tokens, 最大 8192 tokens",
    ),
)

_LIMITED: Final = (
    _row(
        "input",
        r"(?:PROMPT|messages|conversation)~(?:not|n't) fit~WINDOW~{limit}",
        "the prompt does not fit into the context window of 4096 tokens",
    ),
    _row(
        "input",
        r"(?:range of input length should be|length must be in) [(\[]\d{1,12}, ?{limit}[)\]]"
        r"(?:,? but got {input})?",
        "Range of input length should be [1, 983616]",
    ),
    _row(
        "input",
        r"(?:PROMPT|tokens)~OVER~(?<!by ){limit} tokens",
        "Prompt is longer than 8192 tokens",
    ),
    _row(
        "input",
        r"(?:WINDOW|token limit)~(?:exceeded|reached)\W{1,3}max\w*~{limit}",
        "Input token limit exceeded (max 32000)",
    ),
    _row(
        "input",
        r"max\w* context (?:is|of|:)~{limit} tokens",
        "Please reduce your prompt. Maximum context is 4096 tokens",
    ),
    _row(
        "input",
        r"too (?:large|long|many tokens)[^\n]{0,120}?(?:max\w*(?: size)?|limit~(?:is|of|:))\W{0,3}"
        r"{limit} tokens",
        "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    ),
    _row(
        "input",
        r"(?:exceed\w*|(?:long|larg|great)er than|reached)~"
        r"(?:WINDOW|token|prompt|input|max\w* context)~(?<!by ){limit}",
        "Requested tokens exceed context window of 512",
    ),
    _row(
        "input",
        r"(?:输入|上下文|提示词?|消息|对话)[^\d。]{0,20}(?:超过|超出|大于)[^\d。]{0,20}{limit}",
        "输入长度超出模型最大长度限制 32768",
    ),
)

_WORDED: Final = (
    _row(
        "input",
        r"(?:PROMPT|messages|conversation)~(?:not|n't) fit~WINDOW",
        "The prompt does not fit into the context window of this model",
    ),
    _row(
        "input",
        r"WINDOW.{0,20}(?:exceed|overflow|reached)|exceed\w* (?:\w{1,10} ){0,3}WINDOW",
        "Context size has been exceeded.",
    ),
    _row(
        "input",
        r"(?:PROMPT|tokens)~OVER~(?:WINDOW|(?:max\w*|allowed) (?:\w{1,10} )?tokens|token limit)"
        r"|(?:prompts?|inputs?|tokens)~OVER~(?:max\w*|allowed) (?:\w{1,10} )?length",
        "Prompt exceeds max length",
    ),
    _row(
        "input",
        r"(?:PROMPT|conversation)\W{1,3}(?:is |are |was )?too (?:long|large) for\b"
        r"|(?:PROMPT)\W{1,3}(?:has|have|contains?) too many tokens"
        r"|length of all messages is too long",
        "Input is too long for requested model.",
    ),
    _row(
        "input",
        r"reduce (?:the length of )?(?:the |your )?(?:messages|prompt|input)",
        "Please reduce the length of the messages or completion.",
    ),
    _row(
        "input",
        r"(?:输入|上下文|提示词?|消息|对话|token)[^\n。]{0,20}(?:超过|超出|过长|大于|超长)",
        "输入内容超过最大长度限制",
    ),
)

_LIKELY: Final = (
    _row(
        "input",
        r"\b400 (?:status code )?\(no body\)",
        "400 status code (no body)",
        likely=True,
    ),
    _row(
        "input",
        r"(?:WINDOW|prompts?|input (?:is|was|tokens?|length)|conversation).{0,60}"
        r"(?:exceed|too long|too large|longer than)"
        r"|(?:exceed|too long|too large|longer than).{0,60}WINDOW",
        "the prompt is too long",
        likely=True,
    ),
    _row(
        "input",
        r"too many (?:\w{1,10} )?tokens|\btokens?\b.{0,20} limit.{0,20}(?:exceed|reach)"
        r"|(?:exceed|reach).{0,40}\btokens? limit"
        r"|tokens .{0,20}(?:exceed|more than) max\w* (?:\w{1,10} )?tokens",
        "The token limit was exceeded",
        likely=True,
    ),
)

ROWS: Final[tuple[Wording, ...]] = (
    *_BROKEN,
    *_RATES,
    *_SIZES,
    *_CAPS,
    *_OTHERS,
    *_HISTORY,
    *_TOTALS,
    *_MEASURED,
    *_LIMITED,
    *_WORDED,
    *_LIKELY,
)
