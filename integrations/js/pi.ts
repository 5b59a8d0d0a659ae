// pi: `pi -e pi.ts`, or copy this file to ~/.pi/agent/extensions/. ULLAGE_URL and ULLAGE_TOKEN say where the proxy is.
// Before each call of the model the proxy fits the messages; pi's session file stays whole.
const url = process.env.ULLAGE_URL ?? "http://127.0.0.1:8790";
const headers = { "content-type": "application/json", "x-ullage-token": process.env.ULLAGE_TOKEN ?? "" };
const wrap = (one: object) => ({ type: "function", function: one });
const textOf = (content: any) =>
  typeof content === "string" ? content : (content ?? []).map((one: any) => one.text ?? one.thinking ?? `[${one.type}]`).join("");

function write(own: any) {
  if (own.role === "toolResult") return { role: "tool", tool_call_id: own.toolCallId, content: textOf(own.content) };
  if (own.role !== "assistant") return { role: "user", content: textOf(own.content ?? own.summary ?? own.output) };
  const calls = own.content.filter((one: any) => one.type === "toolCall");
  const asked = calls.map((one: any) => ({ id: one.id, ...wrap({ name: one.name, arguments: JSON.stringify(one.arguments) }) }));
  const content = textOf(own.content.filter((one: any) => one.type !== "toolCall"));
  return { role: "assistant", content, ...(asked.length && { tool_calls: asked }) };
}

function edit(own: any, now: any) {
  const said = now.content ? [{ type: "text", text: now.content }] : [];
  const calls = own.role === "assistant" ? own.content.filter((one: any) => one.type === "toolCall") : [];
  const asked = calls.map((one: any, n: number) => ({ ...one, arguments: JSON.parse(now.tool_calls[n].function.arguments) }));
  return { ...own, role: own.content ? own.role : "user", content: [...said, ...asked] };
}

export default (pi: any) =>
  pi.on("context", async ({ messages: own }: any, ctx: any) => {
    const tools = pi.getAllTools().filter((one: any) => pi.getActiveTools().includes(one.name));
    const defined = tools.map(({ name, description, parameters }: any) => wrap({ name, description, parameters }));
    const messages = [{ role: "system", content: ctx.getSystemPrompt() }, ...own.map(write)];
    const last = own.findLastIndex((one: any) => one.usage?.input && one.role === "assistant");
    const { input, cacheRead, cacheWrite, output } = own[last]?.usage ?? {};
    const usage = { prompt_tokens: input + cacheRead + cacheWrite, completion_tokens: output };
    const reported = last < 0 ? null : { messages: last + 1, report: { usage } };
    const body = { model: ctx.model.id, session: ctx.sessionManager.getSessionId(), messages, tools: defined, reported };
    const answer = await fetch(`${url}/ullage/v1/fit`, { method: "POST", headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`ullage: ${await answer.text()}`); // pi tells of it, and sends its own messages
    const fresh = (one: any) => ({ role: "user", content: textOf(one.content), timestamp: Date.now() });
    const apply = (one: any) => own[one.keep - 1] ?? (one.edit ? edit(own[one.edit - 1], one.new) : fresh(one.new));
    return { messages: ((await answer.json()) as any).edits.slice(1).map(apply) }; // the first one is the system prompt
  });
