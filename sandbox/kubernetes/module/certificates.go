package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Who presents a certificate to the API server: the user name and the group RBAC knows them by.
var clients = map[string][2]string{
	"admin":              {"kubernetes-admin", "system:masters"},
	"apiserver-kubelet":  {"kube-apiserver-kubelet-client", "system:masters"},
	"controller-manager": {"system:kube-controller-manager", ""},
	"scheduler":          {"system:kube-scheduler", ""},
	"kwok":               {"kwok", "system:masters"},
	"volcano":            {"volcano", "system:masters"},
}

// certificates writes into a directory: an authority of its own, a server certificate for this machine's loopback
// address (and the names by which pods know the API), a client certificate each, and the key that signs the tokens
// of service accounts. Usage: certificates DIRECTORY SERVICE_IP
func certificates() {
	if len(os.Args) != 3 || net.ParseIP(os.Args[2]) == nil {
		fmt.Fprintln(os.Stderr, "usage: certificates DIRECTORY SERVICE_IP")
		os.Exit(2)
	}
	if err := writeCertificates(os.Args[1], net.ParseIP(os.Args[2])); err != nil {
		fmt.Fprintln(os.Stderr, "certificates:", err)
		os.Exit(1)
	}
}

func writeCertificates(directory string, service net.IP) error {
	authority := template("sandbox-ca", "")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	signer, err := issue(directory, "ca", authority, authority, nil)
	if err != nil {
		return err
	}
	server := template("kube-apiserver", "")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), service}
	server.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	if _, err = issue(directory, "server", server, authority, signer); err != nil {
		return err
	}
	for name, who := range clients {
		client := template(who[0], who[1])
		client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if _, err = issue(directory, name, client, authority, signer); err != nil {
			return err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return writeKey(directory, "service-account", key)
}

func template(name, group string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	subject := pkix.Name{CommonName: name}
	if group != "" {
		subject.Organization = []string{group}
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func issue(directory, name string, wanted, parent *x509.Certificate, signer crypto.Signer) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if signer == nil {
		signer = key // the authority signs itself
	}
	raw, err := x509.CreateCertificate(rand.Reader, wanted, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	if err = writePEM(directory, name+".crt", "CERTIFICATE", raw, 0o644); err != nil {
		return nil, err
	}
	return key, writeKey(directory, name, key)
}

func writeKey(directory, name string, key any) error {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(directory, name+".key", "PRIVATE KEY", raw, 0o600)
}

func writePEM(directory, name, kind string, raw []byte, mode os.FileMode) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
	return os.WriteFile(filepath.Join(directory, name), text, mode)
}
