/* The search takes each word as the beginning of one. Its index has none of these words, so "of" would find "offer" instead. */
"use strict";(() => {
  const none = new Set((
    "a able about across after all almost also am among an and any are as at be because been but by can cannot could dear did do does either else " +
    "ever every for from get got had has have he her hers him his how however i if in into is it its just least let like likely may me might most " +
    "must my neither no nor not of off often on only or other our own rather said say says she should since so some than that the their them then " +
    "there these they this tis to too twas us wants was we were what when where which while who whom why will with would yet you your"
  ).split(" "))
  const given = window.Worker
  window.Worker = class extends given {
    postMessage(message, ...others) {
      if (message.type !== 2) return super.postMessage(message, ...others)   // 2 is a query
      const words = message.data.split(/\s+/), kept = words.filter(word => !none.has(word.toLowerCase()))
      super.postMessage({...message, data: (kept.length ? kept : words).join(" ")}, ...others)
    }
  }
})()
