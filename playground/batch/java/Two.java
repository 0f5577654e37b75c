public class Two { public static void main(String[] args) { System.out.println("Two"); } }
