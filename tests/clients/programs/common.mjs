// What the programs share; see common.py, whose output has the same form.

export const [URL, KEYED_URL] = process.argv.slice(2);
export const KEY = "sk-right";
export const MODEL = "scripted";
export const TOO_LONG = "word ".repeat(1000);
export const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
export const WEATHER = {
  type: "function",
  function: { name: "weather", description: 'The weather of a "city"', parameters: CITY },
};

export const user = (text) => [{ role: "user", content: text }];

export function described(error) {
  return {
    type: error.constructor?.name ?? typeof error,
    status: error.status ?? error.statusCode ?? error.status_code ?? null,
    code: error.code ?? null,
    message: String(error.message ?? error),
  };
}

export async function run(operations) {
  const outcomes = {};
  for (const [name, operation] of Object.entries(operations)) {
    try {
      outcomes[name] = { value: (await operation()) ?? null };
    } catch (error) {
      outcomes[name] = { error: described(error) };
    }
  }
  process.stdout.write(JSON.stringify(outcomes) + "\n", () => process.exit(0));
}
