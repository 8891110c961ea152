/** What is tried in the workbench, as lines that run elsewhere: the key is where `tidegate` looks for it, and never in them. */

import { address, key, part } from "./api.js";

const KEY = "TIDEGATE_KEY";

/** A text as a word of a POSIX shell. */
export const shell = (text) => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** A text, or a list of texts, as Python writes it: as JSON does. */
export const python = (value) => JSON.stringify(value);

/** A line for a shell that listens. */
export function curl(service, filter, params) {
  const url = address(`/v1/services/${part(service)}/events`, { filter, param: params, format: "plain" });
  const who = key.get() === null ? "" : ` -H "Authorization: Bearer $${KEY}"`;
  return `curl -N -H ${shell("Accept: text/event-stream")}${who} ${shell(url.href)}`;
}

/** A program in Python that listens. */
export function client(service, filter, params) {
  const url = address("/").href.replace(/\/$/, "");
  const args = [python(service)];
  if (filter) args.push(`filter=${python(filter)}`);
  if (params.length) args.push(`params=${python(params)}`);
  const isKnown = key.get() !== null;
  const who = isKnown ? `, key=os.environ[${python(KEY)}]` : "";
  return [...(isKnown ? ["import os", ""] : []), "from tidegate import Client", "", `with Client(${python(url)}${who}) as client, client.subscribe(${args.join(", ")}) as events:`, "    for event in events:", "        print(event.id, event.data)"].join("\n");
}
