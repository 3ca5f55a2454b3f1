// Search from a folder: browsers refuse workers on file:// pages, so the worker of the search runs
// in a hidden frame there. On a server nothing changes. It is named so that the theme does not fetch
// a script of another host for the same purpose.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = (address) => new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, document.baseURI).href;
        script.onload = done;
        script.onerror = failed;
        inside.document.head.append(script);
      });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...addresses) => Promise.all(addresses.map(load));
      this.inside = inside;
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
