// The openai library of npm, with its helpers for streams, tools and schemas.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { KEY, KEYED_URL, MODEL, TOO_LONG, URL, WEATHER, described, run, user } from "./common.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: "none" });
const chat = client.chat.completions;
const Person = z.object({ name: z.string(), age: z.number() });

const ask = (text, options = {}) => chat.create({ model: MODEL, messages: user(text), ...options });

async function answer(text, options = {}) {
  const reply = await ask(text, options);
  return { text: reply.choices[0].message.content, finish: reply.choices[0].finish_reason };
}

async function pieces(text, options = {}) {
  const texts = [], finish = [], usage = [];
  let error = null;
  try {
    for await (const chunk of await ask(text, { stream: true, ...options })) {
      if (chunk.usage) usage.push(chunk.usage);
      for (const choice of chunk.choices) {
        if (choice.delta.content) texts.push(choice.delta.content);
        if (choice.finish_reason) finish.push(choice.finish_reason);
      }
    }
  } catch (problem) {
    error = described(problem);
  }
  return { text: texts.join(""), n: texts.length, finish, usage, error };
}

const calls = (message) =>
  (message.tool_calls ?? []).map((call) => ({
    id: call.id,
    name: call.function.name,
    arguments: call.function.arguments,
  }));

async function toolsStream() {
  const stream = chat.stream({ model: MODEL, messages: user("call both"), tools: [WEATHER] });
  const final = await stream.finalChatCompletion();
  return { calls: calls(final.choices[0].message), finish: final.choices[0].finish_reason };
}

async function toolLoop() {
  const tool = {
    type: "function",
    function: { ...WEATHER.function, parse: JSON.parse, function: ({ city }) => `21 degrees, ${city}` },
  };
  return await chat.runTools({ model: MODEL, messages: user("call the weather"), tools: [tool] }).finalContent();
}

async function parse() {
  const format = zodResponseFormat(Person, "person");
  const options = { model: MODEL, messages: user("describe a person"), response_format: format };
  const whole = await chat.parse(options);
  const streamed = await chat.stream(options).finalChatCompletion();
  return { whole: whole.choices[0].message.parsed, streamed: streamed.choices[0].message.parsed };
}

async function responses() {
  const reply = await client.responses.create({ model: MODEL, input: "say hello" });
  const types = [];
  for await (const event of await client.responses.create({ model: MODEL, input: "say hello", stream: true }))
    types.push(event.type);
  return { text: reply.output_text, status: reply.status, types };
}

const withKey = (apiKey) =>
  new OpenAI({ baseURL: `${KEYED_URL}/v1`, apiKey, maxRetries: 0 }).chat.completions
    .create({ model: MODEL, messages: user("say hello") })
    .then((reply) => reply.choices[0].message.content);

await run({
  models: async () => (await client.models.list()).data.map((model) => model.id),
  chat: () => answer("say hello"),
  stream: () => pieces("say hello"),
  usage: () => pieces("say hello", { stream_options: { include_usage: true } }),
  tools: async () => calls((await ask("call the weather", { tools: [WEATHER] })).choices[0].message),
  too_long: () => answer(TOO_LONG),
  busy: () => answer("busy openai node"),
  broken: () => pieces("break"),
  wrong_key: () => withKey("wrong"),
  right_key: () => withKey(KEY),
  embeddings: async () => (await client.embeddings.create({ model: MODEL, input: ["hello", "you"] })).data.length,
  unusual: async () => ({ whole: (await answer("unusual")).text, streamed: (await pieces("unusual")).text }),
  tools_stream: toolsStream,
  tool_loop: toolLoop,
  parse,
  responses,
});
