"use strict";

// The page of a server: it sends the requests that any client with the same token may send, and shows the replies.

const SHOWN_ROWS = 1000;
const PLOT_ROWS = 200000;
const BINS = 400;
const FIRST_BASES = 20000;
const LIGHT = ":host { color: #000; color-scheme: light } select, input, .igv-track-label { color: #000; background-color: #fff; color-scheme: light }";
const SVG = "http://www.w3.org/2000/svg";

const state = { me: null, datasets: [], all: 0, chosen: null, browser: null };
const $ = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
}

function token() {
    return sessionStorage.getItem("token");
}

class Refused extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

async function ask(path, question) {
    const headers = bearer();
    const options = { headers, cache: "no-store" };
    if (question) {
        Object.assign(options, { method: "POST", body: JSON.stringify(question) });
        headers["content-type"] = "application/json";
    }
    const answer = await fetch(`/api/${path}`, options);
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) {
        throw new Refused(answer.status, told.error || `the server replied with HTTP status ${answer.status}`);
    }
    return told;
}

function tell(problem) {
    $("problem").hidden = !problem;
    $("problem").textContent = problem ? problem.message || String(problem) : "";
}

/// Runs something that may fail, and shows why it did.
async function attempt(work) {
    try {
        tell(null);
        await work();
    } catch (problem) {
        if (problem.status === 401) {
            const why = sessionStorage.getItem("why") || "This server requires a token.";
            sessionStorage.removeItem("why");
            askForToken(token() ? "The server rejects this token." : why);
        } else {
            tell(problem);
        }
    }
}

function askForToken(why) {
    sessionStorage.removeItem("token");
    if (state.me) {
        // What the previous token gave access to is removed.
        sessionStorage.setItem("why", why);
        history.replaceState(null, "", location.pathname);
        location.reload();
        return;
    }
    $("login").hidden = false;
    $("logout").hidden = true;
    $("who").textContent = why;
    $("token").focus();
}

function bytesInWords(bytes) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let unit = 0;
    while (bytes >= 1000 && unit + 1 < units.length) {
        bytes /= 1000;
        unit += 1;
    }
    return `${unit ? bytes.toPrecision(3) : bytes} ${units[unit]}`;
}

const number = (value) => Number(value).toLocaleString("en");

function facts(dataset) {
    const told = [];
    const add = (name, value) => value !== null && value !== undefined && told.push([name, value]);
    add("Kind", dataset.kind);
    add("Sample", dataset.sample);
    add("Rows", dataset.rows === null ? null : number(dataset.rows));
    add("Size", dataset.bytes === null ? null : bytesInWords(dataset.bytes));
    return told;
}

function list() {
    const wanted = $("filter").value.toLowerCase();
    const shown = state.datasets.filter((dataset) => dataset.name.toLowerCase().includes(wanted));
    $("datasets").replaceChildren(
        ...shown.map((dataset) => {
            const about = dataset.problem ? "cannot be read" : facts(dataset).filter(([name]) => name !== "Sample").map(([name, value]) => (name === "Rows" ? `${value} rows` : value)).join(" · ");
            const button = element("button", { type: "button" }, dataset.name, element("small", {}, about));
            if (dataset.name === state.chosen?.name) {
                button.setAttribute("aria-current", "true");
            }
            button.addEventListener("click", () => go(dataset.name));
            return element("li", {}, button);
        }),
    );
    $("more").hidden = state.datasets.length >= state.all;
    $("count").textContent = state.me ? `${number(state.datasets.length)} of ${number(state.all)} datasets${wanted ? `, ${number(shown.length)} match` : ""}` : "";
}

async function listMore() {
    const told = await ask(`datasets?from=${state.datasets.length}`);
    state.datasets.push(...told.datasets);
    state.all = told.all;
    list();
}

function go(name, region) {
    const words = new URLSearchParams({ dataset: name });
    if (region) {
        words.set("region", region);
    }
    const hash = `#${words}`;
    if (location.hash === hash) {
        attempt(follow);
    } else {
        location.hash = hash;
    }
}

/// Shows what the address names, unless it names something else before that has come.
async function follow() {
    const turn = (state.turn = (state.turn || 0) + 1);
    const isOver = () => turn !== state.turn;
    const words = new URLSearchParams(location.hash.slice(1));
    const name = words.get("dataset");
    while (name && !state.datasets.some((dataset) => dataset.name === name) && state.datasets.length < state.all) {
        await listMore();
        if (isOver()) {
            return;
        }
    }
    let dataset = state.datasets.find((found) => found.name === name);
    if (!dataset) {
        $("dataset").hidden = true;
        if (name) {
            throw new Error(`There is no dataset ${name}, or you have no access to it.`);
        }
        return;
    }
    const isOther = state.chosen?.name !== name;
    const isFromList = document.activeElement?.closest("nav");
    if (isOther && !dataset.problem) {
        dataset = { ...dataset, ...(await ask("dataset", { name })) };
        if (isOver()) {
            return;
        }
    } else if (!isOther) {
        dataset = state.chosen;
    }
    state.chosen = dataset;
    list();
    $("dataset").hidden = false;
    $("name").textContent = dataset.name;
    $("facts").replaceChildren(...facts(dataset).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
    $("columns").replaceChildren(
        ...(dataset.columns || []).map((column) => element("tr", {}, element("td", {}, column.name), element("td", {}, column.type))),
    );
    $("plots").replaceChildren();
    if (isOther) {
        forgetBrowser();
        showExamples(dataset.problem ? examplesOfList() : examplesOf(dataset));
        $("statement").value = $("examples").value;
        document.title = `${dataset.name} · godwit`;
        if (isFromList) {
            $("main").focus();
        }
    }
    if (dataset.problem) {
        throw new Error(dataset.problem);
    }
    const canPlot = dataset.regions && dataset.kind !== "table" && state.me.sql;
    $("region-form").hidden = !canPlot;
    if (canPlot) {
        const region = words.get("region") || firstRegion(dataset);
        $("region").value = region;
        if (region) {
            const plots = await plotsOf(dataset, region);
            if (!isOver()) {
                $("plots").replaceChildren(...plots);
                // One after the other: each takes the place of the one before.
                state.browsing = (state.browsing || Promise.resolve()).catch(() => {}).then(() => isOver() || browse(dataset, region));
                await state.browsing;
            }
        }
    }
}

const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

function table(dataset) {
    return dataset.kind === "table" ? `"${dataset.name.replaceAll('"', '""')}"` : `${dataset.kind}(${quoted(dataset.name)})`;
}

/// Titles and statements of examples that need no column: one dataset of each kind in the list.
function examplesOfList() {
    const first = (kind) => state.datasets.find((dataset) => dataset.kind === kind && !dataset.problem);
    return ["reads", "variants", "table"].map(first).filter(Boolean).flatMap((dataset) => [
        [`First 20 rows of ${dataset.name}`, `SELECT *\nFROM ${table(dataset)}\nLIMIT 20`],
        [`Number of rows of ${dataset.name}`, `SELECT count(*) AS rows\nFROM ${table(dataset)}`],
    ]);
}

/// Examples for a dataset whose columns are known.
function examplesOf(dataset) {
    const from = `FROM ${table(dataset)}`;
    const examples = [["First 20 rows", `SELECT *\n${from}\nLIMIT 20`]];
    const region = dataset.regions ? firstRegion(dataset) : "";
    if (region) {
        examples.push([`Rows in ${region}`, `SELECT *\n${from}\nWHERE region(${quoted(region)})\nLIMIT 20`]);
    }
    if (has(dataset, "contig")) {
        examples.push(["Rows of each contig", `SELECT contig, count(*) AS rows\n${from}\nGROUP BY contig\nORDER BY contig`]);
    }
    if (has(dataset, "mapping_quality")) {
        examples.push(["Reads of each mapping quality", `SELECT mapping_quality, count(*) AS reads\n${from}\nGROUP BY mapping_quality\nORDER BY mapping_quality DESC`]);
    }
    if (dataset.kind === "variants" && has(dataset, "contig", "position", "quality")) {
        examples.push(["Variants of the highest quality", `SELECT contig, position, quality\n${from}\nORDER BY quality DESC NULLS LAST\nLIMIT 20`]);
    }
    examples.push(["Number of rows", `SELECT count(*) AS rows\n${from}`]);
    return examples;
}

/// Offers examples; an empty statement becomes the first of them.
function showExamples(examples) {
    $("examples-line").hidden = !examples.length;
    $("examples").replaceChildren(...examples.map(([title, statement]) => element("option", { value: statement }, title)));
    if (!$("statement").value.trim()) {
        $("statement").value = $("examples").value;
    }
}

const has = (dataset, ...names) => names.every((name) => dataset.columns.some((column) => column.name === name));

async function query(sql, rows) {
    return ask("query", { sql, rows });
}

/// From where the first row is.
function firstRegion(dataset) {
    if (!dataset.first) {
        return "";
    }
    const [contig, position] = dataset.first;
    // Braces keep the colons of a name apart from that of the range.
    const name = contig.includes(":") ? `{${contig}}` : contig;
    return `${name}:${Number(position) + 1}-${Number(position) + FIRST_BASES}`;
}

/// First and last base of a region as texts, where it has them: the name of a contig may end as a range does.
function rangeOf(dataset, region) {
    const isContig = dataset.contigs?.some(([name]) => name === region);
    const found = isContig ? null : region.replaceAll(",", "").match(/:(\d+)(?:-(\d+))?$/);
    return found ? [found[1], found[2]] : [];
}

async function plotsOf(dataset, region) {
    const where = `FROM ${table(dataset)} WHERE region(${quoted(region)})`;
    const plots = [];
    if (has(dataset, "position", "end_position")) {
        const found = await query(`SELECT position, end_position ${where} AND position IS NOT NULL`, PLOT_ROWS);
        plots.push(depth(found, region, rangeOf(dataset, region), dataset.kind));
    }
    const quality = { reads: "mapping_quality", variants: "quality" }[dataset.kind];
    if (has(dataset, quality)) {
        const found = await query(`SELECT ${quality} ${where} AND ${quality} IS NOT NULL`, PLOT_ROWS);
        plots.push(histogram(found, dataset.kind === "reads" ? "Mapping quality of the reads" : "Quality of the variants", dataset.kind));
    }
    return plots.filter(Boolean);
}

/// Mean depth over stretches of a region, or variants in each.
function depth(found, region, [from, to], kind) {
    const places = found.rows.map(([start, end]) => [Number(start), Number(end)]);
    if (!places.length) {
        return element("p", {}, `No ${kind} in ${region}.`);
    }
    const first = from ? Number(from) - 1 : places.reduce((least, [start]) => Math.min(least, start), Infinity);
    const last = to ? Number(to) : places.reduce((most, [, end]) => Math.max(most, end), first + 1);
    const count = Math.max(1, Math.min(BINS, last - first));
    const width = (last - first) / count;
    const sums = new Array(count).fill(0);
    for (const [start, end] of places) {
        if (kind === "variants") {
            const bin = Math.floor((start - first) / width);
            if (bin >= 0 && bin < count) {
                sums[bin] += 1;
            }
            continue;
        }
        const low = Math.max(start, first);
        const high = Math.min(end, last);
        for (let bin = Math.floor((low - first) / width); bin < count && first + bin * width < high; bin += 1) {
            const covered = Math.min(high, first + (bin + 1) * width) - Math.max(low, first + bin * width);
            sums[bin] += Math.max(0, covered);
        }
    }
    const values = kind === "variants" ? sums : sums.map((sum) => sum / width);
    const title = kind === "variants" ? "Variants along the region" : "Depth along the region";
    return bars(title, values, number(Math.round(first) + 1), number(Math.round(last)), found.more, kind);
}

function histogram(found, title, kind) {
    const values = found.rows.map(([value]) => Number(value));
    if (!values.length) {
        return null;
    }
    const most = values.reduce((most, value) => Math.max(most, value), 1);
    const bins = new Array(kind === "reads" ? most + 1 : 40).fill(0);
    for (const value of values) {
        bins[Math.min(bins.length - 1, Math.floor((value / most) * (bins.length - 1)))] += 1;
    }
    return bars(title, bins, "0", number(Math.round(most)), found.more, kind);
}

/// A plot with its title, the ends of its axis, and its largest value.
function bars(title, values, left, right, isPart, kind) {
    const [width, height] = [800, 120];
    const most = values.reduce((most, value) => Math.max(most, value), 0) || 1;
    const highest = number(Math.round(most * 10) / 10);
    const svg = document.createElementNS(SVG, "svg");
    const set = (it, attributes) => Object.entries(attributes).forEach(([key, value]) => it.setAttribute(key, value));
    set(svg, { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "plot", role: "img" });
    svg.setAttribute("aria-label", `${title}, from ${left} to ${right}; maximum ${highest}`);
    const step = width / values.length;
    values.forEach((value, at) => {
        const tall = (value / most) * height;
        if (tall > 0) {
            const bar = document.createElementNS(SVG, "rect");
            set(bar, { x: at * step, y: height - tall, width: Math.max(step - 0.2, 0.6), height: tall });
            svg.append(bar);
        }
    });
    const note = isPart ? ` (first ${number(PLOT_ROWS)} ${kind})` : "";
    const ends = element("div", { className: "ends" }, element("span", {}, left), element("span", {}, right));
    return element("figure", {}, element("figcaption", {}, title + note), element("small", {}, `maximum ${highest}`), svg, ends);
}

/// What igv.js takes for markup is none of a name.
const plain = (name) => name.replace(/[<>&"'`]/g, "_");

function forgetBrowser() {
    if (state.browser) {
        window.igv.removeBrowser(state.browser);
    }
    state.browser = null;
    $("genome").className = "";
    $("genome").replaceChildren();
}

/// igv.js, where this server has it; it asks for bytes by htsget, as any other client.
async function genomeBrowser() {
    if (!window.igv && !state.noBrowser) {
        await new Promise((done) => {
            const script = element("script", { src: "/site/igv.js", onload: done, onerror: () => done((state.noBrowser = true)) });
            document.head.append(script);
        });
    }
    return window.igv;
}

const bearer = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

/// The first reference of the server that has all contigs of a dataset; else their lengths, without letters.
async function referenceOf(dataset) {
    const listed = await fetch("/references/", { headers: bearer() });
    for (const at of listed.ok ? (await listed.json()).references : []) {
        const fastaURL = `${location.origin}/references/${at}.fa`;
        const answer = await fetch(`${fastaURL}.fai`, { headers: bearer() });
        const index = new Map((await answer.text()).split("\n").map((line) => line.split("\t").slice(0, 2)));
        if (dataset.contigs.every(([name, bases]) => index.get(name) === String(bases))) {
            return { fastaURL, indexURL: `${fastaURL}.fai`, headers: bearer() };
        }
    }
    const sizes = dataset.contigs.map(([name, bases]) => `${name}\t${bases}\n`).join("");
    return { format: "chromsizes", fastaURL: URL.createObjectURL(new Blob([sizes], { type: "text/plain" })) };
}

/// A region as the genome browser takes it: it knows no braces.
const unbraced = (region) => region.replace(/^\{(.*)\}/, "$1");

async function browse(dataset, region) {
    const ending = dataset.name.match(/\.(bam|vcf\.gz|vcf\.bgz)$/i);
    // Bytes are had by who sees all of a file.
    if (!ending || !dataset.contigs?.length || !(await genomeBrowser())) {
        return;
    }
    if (state.browser) {
        await state.browser.search(unbraced(region));
        return;
    }
    $("genome").className = "shown";
    const isReads = dataset.kind === "reads";
    const track = {
        type: isReads ? "alignment" : "variant",
        format: isReads ? "bam" : "vcf",
        sourceType: "htsget",
        url: `${location.origin}/${dataset.kind}/${dataset.name.split("/").map(encodeURIComponent).join("/")}`,
        name: plain(dataset.sample || dataset.name),
        headers: bearer(),
        height: isReads ? 300 : 120,
    };
    state.browser = await window.igv.createBrowser($("genome"), {
        reference: { id: "served", name: plain(dataset.name), wholeGenomeView: false, ...(await referenceOf(dataset)) },
        locus: unbraced(region),
        tracks: [track],
        loadDefaultGenomes: false,
    });
    // It knows no dark pages: what it leaves to the system would be white on white.
    $("genome").shadowRoot?.append(element("style", { textContent: LIGHT }));
    // Nor does it say what its lists are for.
    for (const list of $("genome").shadowRoot?.querySelectorAll("select:not([aria-label])") ?? []) {
        list.setAttribute("aria-label", "Contig");
    }
}

function rowsOf(found) {
    const head = element("tr", {}, ...found.columns.map((column) => element("th", { scope: "col", title: column.type }, column.name)));
    const body = found.rows.map((row) =>
        element("tr", {}, ...row.map((value) => (value === null ? element("td", { className: "none" }, "null") : element("td", {}, value)))),
    );
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

async function runStatement() {
    $("took").textContent = "running…";
    try {
        const found = await query($("statement").value, SHOWN_ROWS);
        $("result").replaceChildren(rowsOf(found));
        $("took").textContent = `${found.more ? "first " : ""}${number(found.rows.length)} ${found.rows.length === 1 ? "row" : "rows"}, ${found.seconds.toFixed(2)} s`;
    } catch (problem) {
        $("took").textContent = "";
        $("result").replaceChildren();
        throw problem;
    }
}

async function start() {
    state.me = await ask("me");
    $("login").hidden = true;
    $("logout").hidden = !token();
    const rules = state.me.rules ? "; access rules apply" : "";
    const principal = state.me.name ? `Signed in as ${state.me.name}` : "Signed in";
    $("who").textContent = (state.me.asked ? principal : "No authentication") + rules;
    $("sql").hidden = !state.me.sql;
    state.datasets = [];
    await listMore();
    showExamples(examplesOfList());
    await follow();
}

$("login").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", $("token").value.trim());
    $("token").value = "";
    attempt(start);
});
$("logout").addEventListener("click", () => {
    forgetBrowser();
    askForToken("Signed out.");
});
$("filter").addEventListener("input", list);
$("more").addEventListener("click", () => attempt(listMore));
$("region-form").addEventListener("submit", (event) => {
    event.preventDefault();
    go(state.chosen.name, $("region").value.trim());
});
$("statement-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(runStatement);
});
$("examples").addEventListener("change", () => {
    $("statement").value = $("examples").value;
});
$("statement").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        attempt(runStatement);
    }
});
window.addEventListener("hashchange", () => attempt(follow));
attempt(start);
