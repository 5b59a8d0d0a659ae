// opencode: copy this file to .opencode/plugin/ or ~/.config/opencode/plugin/. ULLAGE_URL and ULLAGE_TOKEN say where
// the proxy is. Before each call of the model the proxy fits the messages; opencode's own session stays whole.
const url = process.env.ULLAGE_URL ?? "http://127.0.0.1:8790";
const headers = { "content-type": "application/json", "x-ullage-token": process.env.ULLAGE_TOKEN ?? "" };
const wrap = (one: object) => ({ type: "function", function: one });
const system: Record<string, string> = {};

/** A message and its tool results as messages of Chat Completions, each with what it stems from. */
function write(owner: any): any[] {
  const texts = owner.parts.filter((one: any) => one.type === "text" && !one.ignored).map((one: any) => one.text);
  const parts = owner.parts.filter((one: any) => one.type === "tool");
  const calls = parts.map(({ callID: id, tool: name, state }: any) => ({ id, ...wrap({ name, arguments: JSON.stringify(state.input) }) }));
  const message = { role: owner.info.role, content: texts.join("\n"), ...(calls.length && { tool_calls: calls }) };
  const result = ({ callID, state }: any) => ({ role: "tool", tool_call_id: callID, content: state.output ?? state.error ?? "" });
  return [{ message, owner }, ...parts.map((part: any) => ({ message: result(part), owner, part }))];
}

export const Ullage = async () => ({
  "experimental.chat.system.transform": async (input: any, output: any) => void (system[input.sessionID] = output.system.join("\n")),
  "experimental.chat.messages.transform": async (_: any, output: any) => {
    const own = output.messages.flatMap(write);
    const user = output.messages.findLast((one: any) => one.info.role === "user");
    const { sessionID: session, model } = user.info;
    const messages = [{ role: "system", content: system[session] ?? "" }, ...own.map((one: any) => one.message)];
    const last = own.findLastIndex((one: any) => !one.part && one.owner.info.tokens?.input);
    const { input, output: completion_tokens, cache } = own[last]?.owner.info.tokens ?? {};
    const usage = { prompt_tokens: input + cache?.read + cache?.write, completion_tokens };
    const reported = last < 0 ? null : { messages: last + 1, report: { usage } }; // of tools, only the report tells
    const body = JSON.stringify({ model: model.modelID, session, messages, reported });
    const answer = await fetch(`${url}/ullage/v1/fit`, { method: "POST", headers, body }).catch(String);
    if (typeof answer === "string" || !answer.ok) return console.error(`ullage: ${answer}; the messages go out as they are`);
    const fresh = ({ content: text }: any) => ({ info: { ...user.info, id: `${user.info.id}u` }, parts: [{ ...user.parts[0], type: "text", text }] });
    const fitted = ((await answer.json()) as any).edits.slice(1).flatMap((one: any) => {
      const { owner, part } = own[(one.keep ?? one.edit) - 1] ?? {}; // the first one is the system prompt
      if (part && one.new) part.state = { ...part.state, output: one.new.content };
      return part ? [] : [owner ?? fresh(one.new)];
    });
    output.messages.splice(0, output.messages.length, ...fitted); // opencode holds on to this very list
  },
});
