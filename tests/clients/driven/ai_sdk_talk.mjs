// A conversation by the Vercel AI SDK: turn by turn with generateText and streamText, and one long loop of an agent.
// Prints one line of JSON: what each turn came to. `WITH_ULLAGE` is the address of the proxy, empty without it.
import { readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool, ToolLoopAgent } from "ai";

const [turns, pages] = process.argv.slice(2).map(Number);
const proxy = process.env.WITH_ULLAGE;
const { fitSteps } = await import(process.env.PLUGIN);
const schema = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const tools = {
  read: tool({
    description: "Read a file.",
    inputSchema: jsonSchema(schema),
    execute: async ({ path }) => readFileSync(path, "utf8"),
  }),
};
const model = createOpenAICompatible({ name: "strict", baseURL: process.env.MODEL_URL, apiKey: "k" })("gpt-strict");
const asked = [{ name: "read", description: "Read a file.", input_schema: schema }];
const prepareStep = proxy ? fitSteps({ url: proxy, model: "gpt-strict", session: "talk", tools: asked }) : undefined;
const common = { model, tools, prepareStep, instructions: "You read records.", maxRetries: 0 };
const ended = [];

let messages = [];
for (let turn = 1; turn <= turns; turn++) {
  messages.push({ role: "user", content: `Turn ${turn}. Read the next record.` });
  try {
    let made;
    if (turn % 2) made = await generateText({ ...common, messages, stopWhen: stepCountIs(4) });
    else {
      made = streamText({ ...common, messages, stopWhen: stepCountIs(4), onError() {} });
      await made.consumeStream();
    }
    messages.push(...(await made.responseMessages ?? (await made.response).messages));
    ended.push((await made.text) || "nothing");
  } catch (error) {
    ended.push(`failed: ${String(error.message).slice(0, 200)}`);
    messages.pop();
  }
}
let loop = "";
try {
  const agent = new ToolLoopAgent({ ...common, stopWhen: stepCountIs(pages + 2) });
  const made = await agent.generate({ prompt: `Turn 99, ${pages} pages. Read them all.` });
  loop = `${made.steps.length} steps: ${made.text}`;
} catch (error) {
  loop = `failed: ${String(error.message).slice(0, 200)}`;
}
const own = messages.filter((one) => one.role === "tool").map((one) => one.content[0].output.value.length);
console.log(JSON.stringify({ ended, loop, own }));
