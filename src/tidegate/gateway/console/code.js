/** The workbench's filter as code for a shell or Python. The code reads the key from the environment, and never contains it. */

import { address, key, part } from "./api.js";

const KEY = "TIDEGATE_KEY";

/** Quote a text for a POSIX shell. */
export const shell = (text) => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** Write a text, or a list of texts, as a Python literal, which is the same as JSON. */
export const python = (value) => JSON.stringify(value);

/** Return a curl command that subscribes. */
export function curl(service, filter, params) {
  const url = address(`/v1/services/${part(service)}/events`, { filter, param: params, format: "plain" });
  const who = key.get() === null ? "" : ` -H "Authorization: Bearer $${KEY}"`;
  return `curl -N -H ${shell("Accept: text/event-stream")}${who} ${shell(url.href)}`;
}

/** Return a Python program that subscribes. */
export function client(service, filter, params) {
  const url = address("/").href.replace(/\/$/, "");
  const args = [python(service)];
  if (filter) args.push(`filter=${python(filter)}`);
  if (params.length) args.push(`params=${python(params)}`);
  const isKnown = key.get() !== null;
  const who = isKnown ? `, key=os.environ[${python(KEY)}]` : "";
  return [...(isKnown ? ["import os", ""] : []), "from tidegate import Client", "", `with Client(${python(url)}${who}) as client, client.subscribe(${args.join(", ")}) as events:`, "    for event in events:", "        print(event.id, event.data)"].join("\n");
}
