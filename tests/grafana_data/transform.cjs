// What Grafana shows of its data source's answers, by Grafana's own library: reads JSON on stdin,
// writes JSON to stdout.
//
//     node transform.cjs FOLDER_OF_NODE_MODULES < question.json
//
// question: { tables: [{ targets: [{ refId, result }], transformations, keepsEmpty }],
//             values: [[unit, value, decimals]], fields: [[config, value]] }
// answer:   { tables: [[{ heading: value }]], unknownUnits: [unit], texts: [value as written],
//             cells: [value as shown in a field of that config] }
//
// keepsEmpty: a query without a result has an empty frame, as in newer versions of Grafana.
const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");

const data = createRequire(`${process.argv[2]}/`)("@grafana/data");
// What its functions ask a browser for.
globalThis.navigator ??= { language: "en", languages: ["en"] };
globalThis.window ??= globalThis;
const { FieldType, standardTransformers, standardTransformersRegistry } = data;

standardTransformersRegistry.setInit(() =>
  [...new Set(Object.values(standardTransformers))].map((one) => ({
    id: one.id,
    aliasIds: one.aliasIds,
    name: one.name,
    transformation: async () => one,
  })),
);

// As transformDFToTable of @grafana/prometheus: one frame for each query, one field for each label.
function tableOf({ refId, result }, severalQueries) {
  const labels = [];
  for (const { metric } of result) {
    for (const label of Object.keys(metric).sort()) {
      if (!labels.includes(label)) labels.push(label);
    }
  }
  return {
    refId,
    length: result.length,
    fields: [
      field("Time", FieldType.time, result.map((one) => one.value[0] * 1000)),
      ...labels.map((label) =>
        field(label, FieldType.string, result.map((one) => one.metric[label] ?? "")),
      ),
      field(
        severalQueries ? `Value #${refId}` : "Value",
        FieldType.number,
        result.map((one) => parseFloat(one.value[1])),
      ),
    ],
  };
}

function field(name, type, values) {
  return { name, type, config: {}, values };
}

function rowsOf(frames) {
  if (frames.length !== 1) throw new Error(`${frames.length} frames: the table would show one`);
  const [frame] = frames;
  return Array.from({ length: frame.length }, (_, row) =>
    Object.fromEntries(
      frame.fields.map((one) => [data.getFieldDisplayName(one, frame), one.values[row] ?? null]),
    ),
  );
}

function transformed({ targets, transformations, keepsEmpty }) {
  const answered = targets.filter(({ result }) => keepsEmpty || result.length);
  const frames = answered.map((target) => tableOf(target, answered.length > 1));
  return new Promise((resolve, reject) => {
    data.transformDataFrame(transformations, frames).subscribe({
      next: (shown) => resolve(rowsOf(shown)),
      error: reject,
    });
  });
}

function shownIn(config, value) {
  const type = typeof value === "string" ? FieldType.string : FieldType.number;
  const display = data.getDisplayProcessor({
    field: { name: "field", type, config, values: [value] },
    theme: data.createTheme(),
  });
  return data.formattedValueToString(display(value));
}

async function main() {
  const question = JSON.parse(readFileSync(0, "utf8"));
  const known = new Set(
    data.getValueFormats().flatMap((group) => group.submenu.map((one) => one.value)),
  );
  const isCustom = (unit) => /^(suffix|prefix|currency|count|si|time):/.test(unit);
  const units = question.values.map(([unit]) => unit);
  const answer = {
    tables: await Promise.all(question.tables.map(transformed)),
    unknownUnits: units.filter((unit) => !known.has(unit) && !isCustom(unit)),
    cells: question.fields.map(([config, value]) => shownIn(config, value)),
    texts: question.values.map(([unit, value, decimals]) =>
      data.formattedValueToString(data.getValueFormat(unit)(value, decimals)),
    ),
  };
  process.stdout.write(JSON.stringify(answer));
}

main();
