// Bundles the dashboard into dist/, or with --tests the tests into build/test/.
// dist/ is what the gateway embeds.

import { build } from "esbuild";
import { cp, mkdir, readdir, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL(".", import.meta.url));
const path = (name) => `${root}${name}`;

// One place for what browsers must know: modules, top-level await, :has().
const browsers = ["chrome109", "firefox115", "safari16"];

if (process.argv.includes("--tests")) {
  await rm(path("build/test"), { recursive: true, force: true });
  const names = (await readdir(path("test"))).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: names.map((name) => path(`test/${name}`)),
    outdir: path("build/test"),
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node18",
    sourcemap: "inline",
    logLevel: "warning",
  });
} else {
  await rm(path("dist"), { recursive: true, force: true });
  await mkdir(path("dist"));
  await build({
    entryPoints: { app: path("src/dashboard/page/main.ts") },
    outdir: path("dist"),
    bundle: true,
    format: "esm",
    minify: true,
    target: browsers,
    logLevel: "warning",
  });
  await build({
    entryPoints: [path("src/dashboard/app.css")],
    outdir: path("dist"),
    minify: true,
    target: browsers,
    logLevel: "warning",
  });
  for (const name of ["index.html", "icon.svg"]) {
    await cp(path(`src/dashboard/${name}`), path(`dist/${name}`));
  }
}
