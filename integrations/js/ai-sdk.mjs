// Vercel AI SDK: generateText({ ..., prepareStep: fitSteps({ model: "gpt-5.1" }) }), also streamText and ToolLoopAgent.
// Before each step the proxy fits the messages; those that it leaves alone stay the SDK's own objects.
const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value ?? ""));
const join = (content) => (typeof content === "string" ? content : content.map((one) => one.text ?? "").join(""));
const write = (part) => {
  if (part.type === "tool-call") return { type: "tool_use", id: part.toolCallId, name: part.toolName, input: part.input };
  if (part.type !== "tool-result") return { type: "text", text: part.text ?? `[${part.type}]` };
  return { type: "tool_result", tool_use_id: part.toolCallId, content: textOf(part.output.value ?? part.output.reason) };
};
const writeMessage = ({ role, content }) =>
  ({ role: role === "assistant" ? role : "user", content: typeof content === "string" ? content : content.map(write) });
const edit = (part, now) => {
  if (textOf(write(part)) === textOf(now)) return part;
  if (part.type === "tool-call") return { ...part, input: now.input };
  if (part.type === "tool-result") return { ...part, output: { type: "text", value: join(now.content) } };
  return part.type === "text" ? { ...part, text: now.text } : part;
};
const editMessage = (own, { content }) => ({
  ...own,
  content: typeof own.content === "string" ? join(content) : own.content.map((part, n) => edit(part, content[n])),
});

export function fitSteps({ url = "http://127.0.0.1:8790", model, session, token, tools, maxOutputTokens: reserve, onError = console.warn }) {
  let [whole, sent, before] = [[], [], 0]; // the SDK goes on from what a step was given: the whole history is kept here
  return async ({ messages, instructions, steps }) => {
    [before, whole] = steps.length ? [whole.length, [...whole, ...messages.slice(sent.length)]] : [0, messages];
    const { inputTokens: prompt_tokens, outputTokens: completion_tokens } = steps.at(-1)?.usage ?? {};
    const reported = prompt_tokens ? { messages: before, report: { usage: { prompt_tokens, completion_tokens } } } : null;
    const system = [instructions ?? []].flat().map((one) => one.content ?? one).join("\n") || null;
    const asked = { model, session, tools, system, reserve, dialect: "anthropic", messages: whole.map(writeMessage), reported };
    const headers = { "content-type": "application/json", ...(token && { "x-ullage-token": token }) };
    const own = ({ keep, edit: place, new: fresh }) =>
      whole[keep] ?? (whole[place] ? editMessage(whole[place], fresh) : { role: fresh.role, content: join(fresh.content) });
    const answer = await fetch(`${url}/ullage/v1/fit`, { method: "POST", headers, body: JSON.stringify(asked) }).catch(String);
    if (!answer.ok) onError(`ullage: ${answer.text ? await answer.text() : answer}; the messages go out as they are`);
    sent = answer.ok ? (await answer.json()).edits.map(own) : whole;
    return { messages: sent };
  };
}
