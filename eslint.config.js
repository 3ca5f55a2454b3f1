// Rules for the web UI's JavaScript: the recommended ones, for ES modules in a browser.

import js from "@eslint/js";
import globals from "globals";

export default [
  { files: ["src/scalewise/ui/static/*.js"], languageOptions: { globals: globals.browser } },
  { ignores: ["docs/", "site/", "build/", "tests/", ".venv/"] },
  js.configs.recommended,
  { rules: { eqeqeq: "error", "no-var": "error", "prefer-const": "error" } },
];
