// A conversation of the official OpenAI JavaScript SDK, as its makers document it.
// node openai_talk.mjs chat|responses whole|streamed TURNS; where to is OPENAI_BASE_URL's.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const place = createRequire(process.cwd() + "/").resolve("openai");
const { default: OpenAI } = await import(pathToFileURL(place).href);

const [dialect, way, turns] = process.argv.slice(2);
const streamed = way === "streamed";
const client = new OpenAI();
const about = {
  name: "read",
  description: "Read a file.",
  parameters: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
};
const history = [];

const talks = {
  async chat() {
    const asked = {
      model: "tiny",
      messages: history,
      tools: [{ type: "function", function: about }],
    };
    const said = streamed
      ? await client.chat.completions.stream(asked).finalChatCompletion()
      : await client.chat.completions.create(asked);
    const { role, content, tool_calls = [] } = said.choices[0].message;
    history.push(tool_calls.length ? { role, content, tool_calls } : { role, content });
    for (const call of tool_calls) {
      const { path } = JSON.parse(call.function.arguments);
      history.push({ role: "tool", tool_call_id: call.id, content: readFileSync(path, "utf8") });
    }
    return tool_calls.length ? "" : content;
  },
  async responses() {
    const asked = {
      model: "tiny",
      input: history,
      tools: [{ type: "function", strict: false, ...about }],
      store: false,
    };
    let said;
    if (!streamed) said = await client.responses.create(asked);
    else
      for await (const event of await client.responses.create({ ...asked, stream: true }))
        if (event.type === "response.completed") said = event.response;
    history.push(...said.output);
    const calls = said.output.filter((item) => item.type === "function_call");
    for (const { call_id, arguments: given } of calls) {
      const output = readFileSync(JSON.parse(given).path, "utf8");
      history.push({ type: "function_call_output", call_id, output });
    }
    return calls.length ? "" : said.output[0].content[0].text;
  },
};

for (let turn = 0; turn < Number(turns); turn++) {
  history.push({ role: "user", content: `What is in the cellar on day ${turn}?` });
  let text = "";
  while (!text) text = await talks[dialect]();
  console.log(text);
}
