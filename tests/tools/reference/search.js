// node search.js SITE: the site's own search, as its pages run it. Questions on stdin, one a line -> JSON lists of addresses, best first.
const fs = require("fs"), vm = require("vm")
const site = process.argv[2], workers = `${site}/assets/javascripts/workers/`
const [name] = fs.readdirSync(workers).filter(name => /^search\..*\.js$/.test(name))
let listen, answer
const worker = {addEventListener: (_, handler) => { listen = handler }, postMessage: message => answer(message), console}
vm.runInNewContext(fs.readFileSync(workers + name, "utf-8"), Object.assign(worker, {self: worker}))
const ask = message => new Promise(resolve => { answer = resolve; listen({data: message}) })
void (async () => {
  await ask({type: 0, data: {...JSON.parse(fs.readFileSync(`${site}/search/search_index.json`, "utf-8")), options: {}}})
  for (const question of fs.readFileSync(0, "utf-8").split("\n").filter(Boolean)) {
    const {data} = await ask({type: 2, data: question})
    console.log(JSON.stringify(data.items.map(found => found[0].location)))
  }
})()
